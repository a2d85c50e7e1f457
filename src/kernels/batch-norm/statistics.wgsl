// Mean and variance of each channel, one workgroup of THREADS invocations a channel.
//
//   mean[c]     = sum over n, l of x[n,c,l] / M
//   variance[c] = sum over n, l of (x[n,c,l] - mean[c])^2 / M          n below counted_rows(), M of them in all
//
// x: N C L     mean, variance: C
// linked in: counted_rows(), and keep(c, mean, variance, M), which updates running statistics; lane 0 calls it.
// Who does what: lane t takes elements t, t + THREADS, ... of its channel; then lanes are added pairwise.
// Numerics: two passes. The second also sums x - mean, by which both results are corrected, so that the first sum's rounding drops out.
//   Where no row counts, both are 0.
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
  let c = group.y * GROUPS_X + group.x;
  if (c >= C) { return; }
  let count = counted_rows() * L;
  let divisor = f32(max(count, 1u));
  var sum = 0.0;
  for (var i = lane; i < count; i += THREADS) {
    sum += x[(i / L * C + c) * L + i % L];
  }
  let rough = total(lane, vec2(sum, 0.0)).x / divisor;
  var deviations = vec2(0.0);
  for (var i = lane; i < count; i += THREADS) {
    let deviation = x[(i / L * C + c) * L + i % L] - rough;
    deviations += vec2(deviation, deviation * deviation);
  }
  let sums = total(lane, deviations);
  if (lane == 0u) {
    let correction = sums.x / divisor;
    let m = rough + correction;
    let v = max(sums.y - sums.x * correction, 0.0) / divisor;
    mean[c] = m;
    variance[c] = v;
    keep(c, m, v, count);
  }
}
