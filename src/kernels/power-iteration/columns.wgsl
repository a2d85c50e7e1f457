// product[j] = sum over i of matrix[i, j] * u[i]
//
// matrix: H W     u: H     product: W
// Who does what: one invocation a column; neighbours read neighbours.

fn element(j: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < H; i++) {
    sum += matrix[i * W + j] * u[i];
  }
  return sum;
}
