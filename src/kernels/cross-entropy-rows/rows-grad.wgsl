// The gradient of the losses of rows.wgsl by x, from the gradient by each loss.
//
//   logits:             dx[c] = d ((1 - S) w (p[c] - [c = t]) + S / C (p[c] sum_c weight[c] - weight[c]))
//   log-probabilities:  dx[c] = -d w [c = t]
//
// bindings  x, targets, dloss: rows, dx (as bits); class_weight(c) and is_ignored(row, target) are linked in.
// threads, numerics  as rows.wgsl; rows that are ignored get 0.

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.y * GROUPS_X + group.x) * (THREADS / LANES) + thread / LANES;
  let lane = thread % LANES;
  let is_row = row < ROWS;
  let first = (row / INNER) * (N * INNER) + row % INNER;
  var is_used = false;
  var label = 0u;
  var slope = 0.0;
  if (is_row) {
    let given = targets[row];
    is_used = !is_ignored(row, given);
    label = u32(given);
    slope = dloss[row];
  }
  let is_bad = is_used && label >= N;
  var top = 0.0;
  var total = 1.0;
  if (IS_LOGITS == 1u) {
    top = LOWEST;
    if (is_used) {
      for (var c = lane; c < N; c += LANES) { top = max(top, x[first + c * INNER]); }
    }
    top = max_over_lanes(thread, top);
    total = 0.0;
    if (is_used) {
      for (var c = lane; c < N; c += LANES) { total += exp_of(x[first + c * INNER] - top); }
    }
    total = sum_over_lanes(thread, total);
  }
  var weights = 0.0;
  if (SMOOTHING > 0.0) {
    if (is_used) {
      for (var c = lane; c < N; c += LANES) { weights += class_weight(c); }
    }
    weights = sum_over_lanes(thread, weights);
  }
  if (is_row) {
    let own = class_weight(select(label, 0u, is_bad || !is_used));
    for (var c = lane; c < N; c += LANES) {
      let at = first + c * INNER;
      var probability = 0.0;
      if (IS_LOGITS == 1u) { probability = exp_of(x[at] - top) / total; }
      var result = (1.0 - SMOOTHING) * own * (probability - select(0.0, 1.0, c == label));
      if (SMOOTHING > 0.0) {
        result += SMOOTHING / f32(N) * (probability * weights - class_weight(c));
      }
      dx[at] = select(0u, value_bits(slope * result, is_bad), is_used);
    }
  }
}
