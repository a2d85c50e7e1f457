// y = this rank's part of x, with zeros around it where the others' parts lie; the program then writes what the ranks make together over it.
// x: COUNT elements from SOURCE on   y: [TOTAL], the same from TARGET on
// One invocation writes one element.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = (group.y * GROUPS_X + group.x) * 64u + local;
  if (at >= TOTAL) { return; }
  var value = 0.0;
  if (at >= TARGET && at < TARGET + COUNT) { value = x[SOURCE + at - TARGET]; }
  y[at] = value;
}
