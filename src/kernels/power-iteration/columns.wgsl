// product[j] = sum over i of matrix[i, j] * u[i]
//
// matrix: H W     u: H     product: W
// Who does what: one invocation a column; neighbours read neighbours.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let j = (group.y * GROUPS_X + group.x) * 64u + lane;
  if (j >= W) { return; }
  var sum = 0.0;
  for (var i = 0u; i < H; i++) {
    sum += matrix[i * W + j] * u[i];
  }
  product[j] = sum;
}
