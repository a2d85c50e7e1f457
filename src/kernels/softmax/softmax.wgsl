// Softmax, its logarithm, or logsumexp over the middle axis of [outer, N, inner].
//
//   top = max_c x[c]    s = sum_c exp(x[c] - top)
//   put(at, top, s, x[at]) for each element; of logsumexp y[row] = top + log s instead
//
// bindings  x, y; put, which stores, is linked in after lanes.wgsl.
// threads   LANES threads a row, THREADS / LANES rows a group; lane l takes c = l, l + LANES, ...
// numerics  top is subtracted before exp, so huge values are fine; the sum runs over c upwards within a lane, then over
//           lanes as a tree. A row of -inf alone gives NaN (logsumexp: -inf), as PyTorch.

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.y * GROUPS_X + group.x) * (THREADS / LANES) + thread / LANES;
  let lane = thread % LANES;
  let is_row = row < ROWS;
  let first = (row / INNER) * (N * INNER) + row % INNER;
  var top = LOWEST;
  if (is_row) {
    for (var c = lane; c < N; c += LANES) { top = max(top, x[first + c * INNER]); }
  }
  top = max_over_lanes(thread, top);
  var total = 0.0;
  if (is_row) {
    for (var c = lane; c < N; c += LANES) { total += exp_of(x[first + c * INNER] - top); }
  }
  total = sum_over_lanes(thread, total);
  if (is_row) {
    if (HAS_ELEMENTS == 1u) {
      for (var c = lane; c < N; c += LANES) {
        let at = first + c * INNER;
        put(at, top, total, x[at]);
      }
    } else if (lane == 0u) {
      // Beside infinity the total is NaN anyway, so that only the elements tell whether one of them is.
      var result = select(top + log_of(total), top, top > HIGHEST);
      if (top > HIGHEST) {
        for (var c = 0u; c < N; c++) { result = max_of(result, x[first + c * INNER]); }
      }
      y[row] = result;
    }
  }
}
