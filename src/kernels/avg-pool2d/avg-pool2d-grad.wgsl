// Gradient of average pooling, one invocation per pixel (a gather: nothing is scattered).
//
//   dx[p,iy,ix] = sum over the windows that hold the pixel of dy[p,oy,ox] / (weight_row(oy) * weight_column(ox))
//
// dy: P OH OW     dx: P H W     (P = N*C planes, row-major)
// linked in: first and last window of a pixel, and weight of a window, by row and column (windows.ts)
// COUNT = P*H*W invocations in GROUPS_X-wide rows of workgroups; the excess returns at once.
// Numerics: one f32 accumulator, windows in row-major order.
// Source: the definition, by the chain rule.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = (group.y * GROUPS_X + group.x) * 64u + local;
  if (at >= COUNT) { return; }
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
  dx[at] = sum;
}
