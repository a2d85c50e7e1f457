// The gradient of softmax or its logarithm over the middle axis of [outer, N, inner], from dy and the result y.
//
//   d = sum_c weigh(dy[c], y[c])    dx[c] = slope(dy[c], y[c], d)
//   softmax: weigh = dy y, slope = y (dy - d)     its logarithm: weigh = dy, slope = dy - exp(y) d
//
// bindings  dy, y, dx; weigh and slope are linked in after lanes.wgsl.
// threads   as in softmax.wgsl; order of additions too.

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.y * GROUPS_X + group.x) * (THREADS / LANES) + thread / LANES;
  let lane = thread % LANES;
  let is_row = row < ROWS;
  let first = (row / INNER) * (N * INNER) + row % INNER;
  var total = 0.0;
  if (is_row) {
    for (var c = lane; c < N; c += LANES) {
      let at = first + c * INNER;
      total += weigh(dy[at], y[at]);
    }
  }
  total = sum_over_lanes(thread, total);
  if (is_row) {
    for (var c = lane; c < N; c += LANES) {
      let at = first + c * INNER;
      dx[at] = slope(dy[at], y[at], total);
    }
  }
}
