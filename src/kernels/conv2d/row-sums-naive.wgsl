// Sum of dy over the batch and the image, one invocation per channel.
//
//   db[o] = sum over n, oy, ox of dy[n,o,oy,ox]
//
// dy: N O PLANE (PLANE = OH*OW)     db: O
// Numerics: one f32 accumulator per image, then over images: two levels keep long sums exact enough.

fn element(o: u32) -> f32 {
  var sum = 0.0;
  for (var n = 0u; n < N; n++) {
    var inImage = 0.0;
    for (var p = 0u; p < PLANE; p++) {
      inImage += dy_at((n * O + o) * PLANE + p);
    }
    sum += inImage;
  }
  return sum;
}
