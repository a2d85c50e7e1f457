// product[i] = sum over j of matrix[i, j] * v[j]
//
// matrix: H W     v: W     product: H
// Who does what: one workgroup of THREADS a row; lane t takes elements t, t + THREADS, ...; then lanes are added pairwise.

var<workgroup> partial: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = group.y * GROUPS_X + group.x;
  var sum = 0.0;
  if (i < H) {
    for (var j = lane; j < W; j += THREADS) {
      sum += matrix[i * W + j] * v[j];
    }
  }
  partial[lane] = sum;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u && i < H) { product[i] = partial[0]; }
}
