// Gradients of batch normalization by weight and bias, one workgroup of THREADS invocations a channel.
//
//   dbias[c]   = sum over n, l of dy[n,c,l]
//   dweight[c] = sum over n, l of dy[n,c,l] * (x[n,c,l] - mean[c]) * scale(c)       scale = 1 / sqrt(variance + EPS)
//
// dy, x: N C L     mean, variance, dweight, dbias: C     M = N*L
// Who does what: lane t takes elements t, t + THREADS, ... of its channel; then lanes are added pairwise.
// Numerics: f32; the order of additions depends on the sizes alone. No elements give 0.
// Source: the definition, by the chain rule.

var<workgroup> partial: array<vec2<f32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let c = group.y * GROUPS_X + group.x;
  if (c >= C) { return; }
  let center = mean[c];
  var sums = vec2(0.0);
  for (var i = lane; i < M; i += THREADS) {
    let at = (i / L * C + c) * L + i % L;
    let value = dy[at];
    sums += vec2(value, value * (x[at] - center));
  }
  partial[lane] = sums;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u) {
    dbias[c] = partial[0].x;
    dweight[c] = partial[0].y / sqrt(variance[c] + EPS);
  }
}
