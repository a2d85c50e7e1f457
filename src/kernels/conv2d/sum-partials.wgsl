// Adds the partial gradients of `split` in a fixed order.
//
//   out[i] = sum over s < SPLITS of partial[s, i]      i < WEIGHTS goes to dw, the rest (row sums) to db
//
// partial: SPLITS WIDTH     dw: WEIGHTS     db: WIDTH - WEIGHTS, where wanted
// One invocation per i; neighbours read neighbours.
// Numerics: plain f32 sum in the order of s.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let index = (group.y * GROUPS_X + group.x) * 64u + local;
  if (index >= WIDTH) { return; }
  var sum = 0.0;
  for (var s = 0u; s < SPLITS; s++) {
    sum += partial[s * WIDTH + index];
  }
  put(index, sum);
}
