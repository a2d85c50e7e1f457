// The end of top-k accuracy over several groups: adds N counts.
//
// bindings  partials: N (u32), correct: one f32.
// threads   one group of THREADS; thread t adds counts t, t + THREADS, ..., then a tree over threads.
// numerics  exact to 2^24 rows, where f32 ends to hold every integer.

var<workgroup> sums: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
  var sum = 0u;
  for (var i = thread; i < N; i += THREADS) {
    sum += partials[i];
  }
  sums[thread] = sum;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) {
      sums[thread] += sums[thread + stride];
    }
    workgroupBarrier();
  }
  if (thread == 0u) {
    correct[0] = f32(sums[0]);
  }
}
