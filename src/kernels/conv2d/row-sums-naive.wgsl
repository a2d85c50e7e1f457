// Sum of dy over the batch and the image, one invocation per channel.
//
//   db[o] = sum over n, oy, ox of dy[n,o,oy,ox]
//
// dy: N O PLANE (PLANE = OH*OW)     db: O
// Numerics: one f32 accumulator per image, then over images: two levels keep long sums exact enough.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let o = (group.y * GROUPS_X + group.x) * 64u + local;
  if (o >= O) { return; }
  var sum = 0.0;
  for (var n = 0u; n < N; n++) {
    var inImage = 0.0;
    for (var p = 0u; p < PLANE; p++) {
      inImage += dy_at((n * O + o) * PLANE + p);
    }
    sum += inImage;
  }
  db[o] = sum;
}
