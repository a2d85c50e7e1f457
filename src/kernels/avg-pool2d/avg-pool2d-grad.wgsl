// Gradient of average pooling, one invocation per pixel (a gather: nothing is scattered).
//
//   dx[p,iy,ix] = sum over the windows that hold the pixel of dy[p,oy,ox] / (weight_row(oy) * weight_column(ox))
//
// dy: P OH OW     dx: P H W     (P = N*C planes, row-major)
// linked in: first and last window of a pixel, and weight of a window, by row and column (windows.ts)
// Numerics: one f32 accumulator, windows in row-major order.
// Source: the definition, by the chain rule.

fn element(at: u32) -> f32 {
  let ix = at % W;
  let iy = at / W % H;
  let plane = at / (W * H) * (OH * OW);
  let last_x = last_column(ix);
  let last_y = last_row(iy);
  var sum = 0.0;
  for (var oy = first_row(iy); oy <= last_y; oy++) {
    for (var ox = first_column(ix); ox <= last_x; ox++) {
      sum += dy[plane + oy * OW + ox] / f32(weight_row(oy) * weight_column(ox));
    }
  }
  return sum;
}
