// kept = product / max(|product|, EPS), and `copy` the same where it is bound
//
// product: N     kept: N     copy: N
// linked in: put(i, value), which stores an element.
// Who does what: one workgroup of THREADS; lane t takes elements t, t + THREADS, ...; squares are added pairwise over lanes.

var<workgroup> partial: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) lane: u32) {
  var squares = 0.0;
  for (var i = lane; i < N; i += THREADS) {
    squares += product[i] * product[i];
  }
  partial[lane] = squares;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  let length = max(sqrt(partial[0]), EPS);
  for (var i = lane; i < N; i += THREADS) {
    put(i, product[i] / length);
  }
}
