// Max pooling forward, one invocation per output element.
//
//   y[p,oy,ox]     = max over the window of x[p, oy*SH + ky*DH - PH, ox*SW + kx*DW - PW]
//   index[p,oy,ox] = row * W + column of that pixel in its plane
//
// x: P H W     y, index: P OH OW     (P = N*C planes, row-major)
// EH = DH*(KH-1) + 1 rows from a window's first to its last, EW likewise; every window holds a pixel.
// Padding counts as -inf and never wins, so index is always a pixel of the image.
// Ties: the first in row-major order, since only a greater value replaces. A window of -inf alone gives its first pixel.
// Numerics: exact. NaN wins, the last one as in PyTorch, found by its bits because compilers may assume that none occurs.
// Source: the definition (PyTorch torch.nn.functional.max_pool2d with return_indices).

// The first of start, start + step, .. that is not negative.
fn first_inside(start: i32, step: i32) -> u32 {
  return u32(start + select(0, (step - 1 - start) / step * step, start < 0));
}

fn element(at: u32) -> f32 {
  let ox = at % OW;
  let oy = at / OW % OH;
  let plane = at / (OW * OH) * (H * W);
  let top = i32(oy * SH) - i32(PH);
  let left = i32(ox * SW) - i32(PW);
  let row_end = u32(min(top + i32(EH), i32(H)));
  let column_end = u32(min(left + i32(EW), i32(W)));
  let row_start = first_inside(top, i32(DH));
  let column_start = first_inside(left, i32(DW));

  var winner = row_start * W + column_start;
  var best = x[plane + winner];
  for (var row = row_start; row < row_end; row += DH) {
    for (var column = column_start; column < column_end; column += DW) {
      let here = row * W + column;
      let value = x[plane + here];
      if (is_nan(value) || (!is_nan(best) && value > best)) {
        best = value;
        winner = here;
      }
    }
  }
  index[at] = i32(winner);
  return best;
}
