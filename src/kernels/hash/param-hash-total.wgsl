// The end of the parameter hash over several groups: adds N pairs of lanes.
//
// bindings  partials: 2 N (u32; lane a and lane b by turns), hash: 2 (u32).
// threads   one group of THREADS; thread t adds pairs t, t + THREADS, ..., then a tree over threads.
// numerics  wrapping u32, so exact.

var<workgroup> sums: array<vec2<u32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
  var sum = vec2<u32>(0u, 0u);
  for (var i = thread; i < N; i += THREADS) {
    sum += vec2<u32>(partials[2u * i], partials[2u * i + 1u]);
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
    hash[0] = sums[0].x;
    hash[1] = sums[0].y;
  }
}
