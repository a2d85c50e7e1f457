// y = x, bit by bit.
// x, y: [COUNT] words of 32 bits
// One invocation copies one word.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = (group.y * GROUPS_X + group.x) * 64u + local;
  if (at >= COUNT) { return; }
  y[at] = x[at];
}
