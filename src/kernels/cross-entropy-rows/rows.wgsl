// Losses of the rows of classification, [outer, C, inner] with one target for each of outer x inner rows.
//
//   w = weight[t]    log-probability of c: x[c] - top - log s (logits), or x[c] itself
//   loss = (1 - S) w (-logp[t]) + S / C sum_c weight[c] (-logp[c])
//   put(row, loss bits, w); a row that is ignored has loss and weight 0
//
// bindings  x, targets: rows (i32); put, class_weight(c) and is_ignored(row, target) are linked in after lanes.wgsl.
// threads   LANES threads a row, THREADS / LANES rows a group; lane l takes c = l, l + LANES, ...
// numerics  as cross-entropy-rows.wgsl: top is subtracted before exp, and x[t] from top before log s is added.
//           A target outside 0..C-1 that is not ignored gives NaN bits.
// source    torch.nn.functional.cross_entropy and nll_loss with reduction="none".

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.y * GROUPS_X + group.x) * (THREADS / LANES) + thread / LANES;
  let lane = thread % LANES;
  let is_row = row < ROWS;
  let first = (row / INNER) * (N * INNER) + row % INNER;
  var is_used = false;
  var label = 0u;
  if (is_row) {
    let given = targets[row];
    is_used = !is_ignored(row, given);
    label = u32(given);
  }
  let is_bad = is_used && label >= N;
  var top = 0.0;
  var log_sum = 0.0;
  if (IS_LOGITS == 1u) {
    top = LOWEST;
    if (is_used) {
      for (var c = lane; c < N; c += LANES) { top = max(top, x[first + c * INNER]); }
    }
    top = max_over_lanes(thread, top);
    var total = 0.0;
    if (is_used) {
      for (var c = lane; c < N; c += LANES) { total += exp_of(x[first + c * INNER] - top); }
    }
    log_sum = log_of(sum_over_lanes(thread, total));
  }
  var spread = 0.0;
  if (SMOOTHING > 0.0) {
    if (is_used) {
      for (var c = lane; c < N; c += LANES) {
        spread += class_weight(c) * (log_sum + (top - x[first + c * INNER]));
      }
    }
    spread = sum_over_lanes(thread, spread);
  }
  if (is_row && lane == 0u) {
    if (is_used) {
      let safe = select(label, 0u, is_bad);
      let own = class_weight(safe);
      let chosen = own * (log_sum + (top - x[first + safe * INNER]));
      put(row, value_bits((1.0 - SMOOTHING) * chosen + SMOOTHING / f32(N) * spread, is_bad), own);
    } else {
      put(row, 0u, 0.0);
    }
  }
}
