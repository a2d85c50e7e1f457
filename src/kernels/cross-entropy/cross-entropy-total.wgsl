// The end of cross entropy over several groups: the mean of N partial sums.
//
//   loss = (sum_i partials[i]) / used,   used = partials[N]
//
// bindings  partials: N (f32 bits; a NaN spoils the loss) and a whole number, loss: one f32, as bits.
// threads   one group; thread t adds partials t, t + THREADS, ... and a binary tree adds the threads. THREADS = 1 is
//           the plain loop.
// numerics  fixed order of additions, whatever the device.

var<workgroup> values: array<f32, THREADS>;
var<workgroup> flags: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
  var total = 0.0;
  var bad = 0u;
  for (var i = thread; i < N; i += THREADS) {
    let bits = partials[i];
    bad |= u32(is_nan_bits(bits));
    total += bitcast<f32>(bits);
  }
  values[thread] = total;
  flags[thread] = bad;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) {
      values[thread] += values[thread + stride];
      flags[thread] |= flags[thread + stride];
    }
    workgroupBarrier();
  }
  if (thread == 0u) {
    let used = select(0u, partials[N], N > 0u);
    loss[0] = mean_bits(values[0], flags[0] != 0u, used);
  }
}
