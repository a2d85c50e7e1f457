// Mean and variance of each channel, one workgroup of THREADS invocations a channel.
//
//   mean[c]     = sum over n, l of x[n,c,l] / M
//   variance[c] = sum over n, l of (x[n,c,l] - mean[c])^2 / M          M = N*L
//
// x: N C L     mean, variance: C
// linked in: keep(c, mean, variance), which updates running statistics; lane 0 calls it.
// Who does what: lane t takes elements t, t + THREADS, ... of its channel; then lanes are added pairwise.
// Numerics: two passes. The second also sums x - mean, by which both results are corrected, so that the first sum's rounding drops out.
//   The order of additions depends on the sizes alone.
// Source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983), the corrected two-pass algorithm.

var<workgroup> partial: array<vec2<f32>, THREADS>;

/** The sum of all lanes' values, in every lane. */
fn total(lane: u32, value: vec2<f32>) -> vec2<f32> {
  workgroupBarrier();
  partial[lane] = value;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  return partial[0];
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let c = group.x;
  var sum = 0.0;
  for (var i = lane; i < M; i += THREADS) {
    sum += x[(i / L * C + c) * L + i % L];
  }
  let rough = total(lane, vec2(sum, 0.0)).x / f32(M);
  var deviations = vec2(0.0);
  for (var i = lane; i < M; i += THREADS) {
    let deviation = x[(i / L * C + c) * L + i % L] - rough;
    deviations += vec2(deviation, deviation * deviation);
  }
  let sums = total(lane, deviations);
  if (lane == 0u) {
    let correction = sums.x / f32(M);
    let m = rough + correction;
    let v = max(sums.y - sums.x * correction, 0.0) / f32(M);
    mean[c] = m;
    variance[c] = v;
    keep(c, m, v);
  }
}
