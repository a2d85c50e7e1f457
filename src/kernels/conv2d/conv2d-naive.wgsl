// Convolution forward, one invocation per output element.
//
//   y[n,o,oy,ox] = finish( sum over c, ky, kx of x[n, g*CG + c, oy*SH + ky*DH - PH, ox*SW + kx*DW - PW] * w[o,c,ky,kx] )
//                 with g = o / OG, the group
//
// x: N C H W     w: O CG KH KW     y: N O OH OW     (NCHW, row-major)
// COUNT = N*O*OH*OW invocations in GROUPS_X-wide rows of workgroups; the excess returns at once.
// Pixels outside the image count as 0: their terms are left out.
// Numerics: one f32 accumulator, summed in the order c, ky, kx.
// Source: the definition (PyTorch torch.nn.functional.conv2d).

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let index = (group.y * GROUPS_X + group.x) * 64u + local;
  if (index >= COUNT) { return; }
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
  y[index] = finish(sum, n, o, oy, ox);
}
