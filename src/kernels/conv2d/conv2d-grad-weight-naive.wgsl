// Gradient of a convolution by its weights, one invocation per weight, and one per row sum where wanted.
//
//   dw[o,c,ky,kx] = sum over n, oy, ox of dy[n,o,oy,ox] * x[n, g*CG + c, oy*SH + ky*DH - PH, ox*SW + kx*DW - PW],
//                   with g = o / OG, the group
//
// dy: N O OH OW     x: N C H W     dw: O CG KH KW
// Pixels outside the image count as 0. An empty batch gives 0.
// Numerics: one f32 accumulator, summed in the order n, oy, ox. Long sums lose digits here: `split` is more exact.
// Source: the definition, by the chain rule.

fn element(index: u32) -> f32 {
  let kx = index % KW;
  let ky = index / KW % KH;
  let o = index / (KW * KH * CG);
  let c = o / OG * CG + index / (KW * KH) % CG;
  var sum = 0.0;
  for (var n = 0u; n < N; n++) {
    for (var oy = 0u; oy < OH; oy++) {
      let iy = oy * SH + ky * DH - PH;
      if (iy >= H) { continue; }
      for (var ox = 0u; ox < OW; ox++) {
        let ix = ox * SW + kx * DW - PW;
        if (ix >= W) { continue; }
        sum += dy_at(((n * O + o) * OH + oy) * OW + ox) * x_at(((n * C + c) * H + iy) * W + ix);
      }
    }
  }
  return sum;
}
