// Convolution forward, one invocation per output element.
//
//   y[n,o,oy,ox] = finish( sum over c, ky, kx of x[n, g*CG + c, oy*SH + ky*DH - PH, ox*SW + kx*DW - PW] * w[o,c,ky,kx] )
//                 with g = o / OG, the group
//
// x: N C H W     w: O CG KH KW     y: N O OH OW     (NCHW, row-major)
// Pixels outside the image count as 0: their terms are left out.
// Numerics: one f32 accumulator, summed in the order c, ky, kx.
// Source: the definition (PyTorch torch.nn.functional.conv2d).

fn element(index: u32) -> f32 {
  let ox = index % OW;
  let oy = index / OW % OH;
  let o = index / (OW * OH) % O;
  let n = index / (OW * OH * O);
  let first = n * C + o / OG * CG;
  var sum = 0.0;
  for (var c = 0u; c < CG; c++) {
    for (var ky = 0u; ky < KH; ky++) {
      // Above and left of the image the unsigned coordinate wraps to a huge value, so one comparison does for both ends.
      let iy = oy * SH + ky * DH - PH;
      if (iy >= H) { continue; }
      for (var kx = 0u; kx < KW; kx++) {
        let ix = ox * SW + kx * DW - PW;
        if (ix >= W) { continue; }
        sum += x_at(((first + c) * H + iy) * W + ix) * w_at(((o * CG + c) * KH + ky) * KW + kx);
      }
    }
  }
  return finish(sum, n, o, oy, ox);
}
