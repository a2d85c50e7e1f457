// Average pooling forward, one invocation per output element.
//
//   y[p,oy,ox] = ( sum over the window's pixels inside the image of x[p,iy,ix] ) / (weight_row(oy) * weight_column(ox))
//
// x: P H W     y: P OH OW     (P = N*C planes, row-major)
// linked in: start, end and weight of a window by row and column (windows.ts)
// Numerics: one f32 accumulator, row by row, then one division.
// Source: the definition (PyTorch torch.nn.functional.avg_pool2d and adaptive_avg_pool2d).

fn element(at: u32) -> f32 {
  let ox = at % OW;
  let oy = at / OW % OH;
  let plane = at / (OW * OH) * (H * W);
  let column_start = start_column(ox);
  let column_end = end_column(ox);
  let row_end = end_row(oy);
  var sum = 0.0;
  for (var row = start_row(oy); row < row_end; row++) {
    for (var column = column_start; column < column_end; column++) {
      sum += x[plane + row * W + column];
    }
  }
  return sum / f32(weight_row(oy) * weight_column(ox));
}
