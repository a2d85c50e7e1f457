// Gradient of a convolution by its input, one invocation per element of dx (a gather: nothing is scattered).
//
//   dx[n,c,iy,ix] = finish( sum over o, ky, kx of dy[n,o,oy,ox] * w[o,c%CG,ky,kx] ), o in the group of c,
//                   where oy*SH = iy + PH - ky*DH and ox*SW = ix + PW - kx*DW have a solution inside OH x OW
//
// dy: N O OH OW     w: O CG KH KW     dx: N C H W
// COUNT = N*C*H*W invocations in GROUPS_X-wide rows of workgroups; the excess returns at once.
// Numerics: one f32 accumulator, summed in the order o, ky, kx.
// Source: the definition, by the chain rule.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let index = (group.y * GROUPS_X + group.x) * 64u + local;
  if (index >= COUNT) { return; }
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
  dx[index] = finish(sum, n, c, iy, ix);
}
