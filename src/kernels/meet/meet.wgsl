// y = x where this rank's values lie, 0 where the others' do; the program then writes what the ranks make together over it.
// x: [COUNT]   y: [TOTAL]
// One invocation writes one element.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = (group.y * GROUPS_X + group.x) * 64u + local;
  if (at >= TOTAL) { return; }
  let own = at / COUNT == OWN;
  y[at] = select(0.0, x[at % COUNT], own);
}
