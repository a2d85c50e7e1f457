// Gradient of a convolution by its input, one invocation per element of dx (a gather: nothing is scattered).
//
//   dx[n,c,iy,ix] = finish( sum over o, ky, kx of dy[n,o,oy,ox] * w[o,c%CG,ky,kx] ), o in the group of c,
//                   where oy*SH = iy + PH - ky*DH and ox*SW = ix + PW - kx*DW have a solution inside OH x OW
//
// dy: N O OH OW     w: O CG KH KW     dx: N C H W
// Numerics: one f32 accumulator, summed in the order o, ky, kx.
// Source: the definition, by the chain rule.

fn element(index: u32) -> f32 {
  let ix = index % W;
  let iy = index / W % H;
  let c = index / (W * H) % C;
  let n = index / (W * H * C);
  var sum = 0.0;
  let o_first = c / CG * OG;
  for (var o = o_first; o < o_first + OG; o++) {
    for (var ky = 0u; ky < KH; ky++) {
      let ty = i32(iy + PH) - i32(ky * DH);
      if (ty < 0 || ty % i32(SH) != 0 || ty / i32(SH) >= i32(OH)) { continue; }
      let oy = u32(ty) / SH;
      for (var kx = 0u; kx < KW; kx++) {
        let tx = i32(ix + PW) - i32(kx * DW);
        if (tx < 0 || tx % i32(SW) != 0 || tx / i32(SW) >= i32(OW)) { continue; }
        let ox = u32(tx) / SW;
        sum += dy_at(((n * O + o) * OH + oy) * OW + ox) * w_at(((o * CG + c % CG) * KH + ky) * KW + kx);
      }
    }
  }
  return finish(sum, n, c, iy, ix);
}
