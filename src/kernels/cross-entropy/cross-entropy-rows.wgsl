// Cross entropy from logits: the plain form, one thread to a row.
//
//   top = max_c x[r,c]    s = sum_c exp(x[r,c] - top)
//   row loss = log s + (top - x[r,t])
//   dx[r,c]  = (exp(x[r,c] - top) / s - [c = t]) * scale / used,   0 for r >= count and for ignored rows
//
// bindings  logits: R C, targets: R (i32); what is stored where is linked in:
//           counted_rows(), is_ignored(target), gradient_scale(), put_gradient(index, value bits), put_row(row, value bits),
//           put_used(rows that are counted and not ignored)
// threads   THREADS to a group, thread = row; each checks its own row.
// numerics  top is subtracted before exp, so huge logits are fine; top - x[r,t] is taken before log s is added, so a
//           large common offset costs no digits. Sums run over c upwards. A target outside 0..C-1 gives NaN bits.
// source    the textbook formula; PyTorch's cross_entropy with reduction="mean".

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let row = (group.y * GROUPS_X + group.x) * THREADS + thread;
  if (row >= R) {
    return;
  }
  let count = counted_rows();
  var used = 0u;
  for (var r = 0u; r < count; r++) {
    used += u32(!is_ignored(targets[r]));
  }
  if (row == 0u) {
    put_used(used);
  }
  let first = row * C;
  if (row >= count || is_ignored(targets[row])) {
    put_row(row, 0u);
    for (var c = 0u; c < C; c++) {
      put_gradient(first + c, 0u);
    }
    return;
  }
  let label = u32(targets[row]);
  let is_bad = label >= C;
  var top = LOWEST;
  for (var c = 0u; c < C; c++) {
    top = max(top, logits[first + c]);
  }
  var sum = 0.0;
  for (var c = 0u; c < C; c++) {
    sum += exp_of(logits[first + c] - top);
  }
  let chosen = logits[select(first + label, 0u, is_bad)];
  put_row(row, value_bits(log_of(sum) + (top - chosen), is_bad));
  let scale = gradient_scale() / f32(used);
  for (var c = 0u; c < C; c++) {
    let probability = exp_of(logits[first + c] - top) / sum;
    put_gradient(first + c, value_bits((probability - select(0.0, 1.0, c == label)) * scale, is_bad));
  }
}
