// The end of a norm over several groups: joins N pairs of (value, flag).
//
// bindings  partials: 2 N; stats: 2; the norm's join(a, b) is linked in.
// threads   one group; thread t joins pairs t, t + THREADS, ..., then a tree over threads.

var<workgroup> values: array<f32, THREADS>;
var<workgroup> flags: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
  var value = 0.0;
  var flag = 0.0;
  for (var i = thread; i < N; i += THREADS) {
    value = join(value, partials[2u * i]);
    flag = max(flag, partials[2u * i + 1u]);
  }
  values[thread] = value;
  flags[thread] = flag;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) {
      values[thread] = join(values[thread], values[thread + stride]);
      flags[thread] = max(flags[thread], flags[thread + stride]);
    }
    workgroupBarrier();
  }
  if (thread == 0u) {
    stats[0] = values[0];
    stats[1] = flags[0];
  }
}
