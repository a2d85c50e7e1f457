// Gradient of max pooling, one invocation per input pixel (a gather: nothing is scattered, no atomics).
//
//   dx[n,c,iy,ix] = finish( sum over windows (oy, ox) that hold the pixel and have index = iy*W + ix of dy[n,c,oy,ox] )
//
// dy, index: N C OH OW     dx: N C H W
// Numerics: f32, windows in row-major order; without overlap the sum has one term.
// Source: the definition, by the chain rule; PyTorch scatters over outputs instead.

fn element(at: u32) -> f32 {
  let ix = at % W;
  let iy = at / W % H;
  let c = at / (W * H) % C;
  let n = at / (W * H * C);
  let plane = at / (W * H) * (OH * OW);
  let here = i32(iy * W + ix);
  // Windows that span row iy: oy*SH <= iy + PH < oy*SH + EH. Between their taps no index points here.
  let row = iy + PH;
  let column = ix + PW;
  let oy_end = min(row / SH + 1u, OH);
  let ox_end = min(column / SW + 1u, OW);
  let oy_start = select(0u, (row - EH) / SH + 1u, row >= EH);
  let ox_start = select(0u, (column - EW) / SW + 1u, column >= EW);
  var sum = 0.0;
  for (var oy = oy_start; oy < oy_end; oy++) {
    for (var ox = ox_start; ox < ox_end; ox++) {
      let window = plane + oy * OW + ox;
      if (index[window] == here) { sum += dy[window]; }
    }
  }
  return finish(sum, n, c, iy, ix);
}
