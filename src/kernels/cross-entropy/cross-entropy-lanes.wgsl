// Cross entropy from logits: LANES threads to a row, THREADS / LANES rows at once, STEPS times in each group.
//
//   top = max_c x[r,c]    s = sum_c exp(x[r,c] - top)
//   row loss = log s + (top - x[r,t])
//   dx[r,c]  = (exp(x[r,c] - top) / s - [c = t]) * scale / used,   0 for r >= count and for ignored rows
//
// bindings  logits: R C, targets: R (i32); what is stored where is linked in:
//           counted_rows(), is_ignored(target), gradient_scale(), put_gradient(index, value bits),
//           put_total(group, sum, is_bad, rows that are counted and not ignored), over_lanes0 (max) and over_lanes1 (sum)
// threads   lane l of a row reads columns l, l + LANES, ...; lanes of a row are neighbours, so reads coalesce.
//           Each group counts the ignored targets for itself. With GROUPS = 1 the whole loss and gradient are this one dispatch; else each group puts one partial sum.
// numerics  as in cross-entropy-rows.wgsl. Order of every sum: within a lane over c upwards, over lanes as a binary
//           tree; row losses within a thread over steps upwards, over threads as a binary tree.
// source    ours; the tree is the usual workgroup reduction with halving strides.

var<workgroup> values: array<f32, THREADS>;
var<workgroup> flags: array<u32, THREADS>;
var<workgroup> used_rows: atomic<u32>;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let group = group_id.y * GROUPS_X + group_id.x;
  let lane = thread % LANES;
  let count = counted_rows();
  var own_used = 0u;
  for (var r = thread; r < count; r += THREADS) {
    own_used += u32(!is_ignored(targets[r]));
  }
  atomicAdd(&used_rows, own_used);
  workgroupBarrier();
  let used = atomicLoad(&used_rows);
  let scale = gradient_scale() / f32(max(used, 1u));
  var total = 0.0;
  var bad = 0u;
  for (var step = 0u; step < STEPS; step++) {
    let row = (group * STEPS + step) * (THREADS / LANES) + thread / LANES;
    let first = row * C;
    var is_counted = row < count;
    if (is_counted) {
      is_counted = !is_ignored(targets[row]);
    }
    var top = LOWEST;
    if (is_counted) {
      for (var c = lane; c < C; c += LANES) {
        top = max(top, logits[first + c]);
      }
    }
    top = over_lanes0(thread, top);
    var sum = 0.0;
    if (is_counted) {
      for (var c = lane; c < C; c += LANES) {
        sum += exp_of(logits[first + c] - top);
      }
    }
    sum = over_lanes1(thread, sum);
    var label = 0u;
    var is_bad = false;
    if (is_counted) {
      label = u32(targets[row]);
      is_bad = label >= C;
      if (lane == 0u) {
        let chosen = logits[select(first + label, 0u, is_bad)];
        total += log_of(sum) + (top - chosen);
        bad |= u32(is_bad);
      }
    }
    if (HAS_GRADIENT == 1u && row < R) {
      for (var c = lane; c < C; c += LANES) {
        if (is_counted) {
          let probability = exp_of(logits[first + c] - top) / sum;
          put_gradient(first + c, value_bits((probability - select(0.0, 1.0, c == label)) * scale, is_bad));
        } else {
          put_gradient(first + c, 0u);
        }
      }
    }
  }
  if (HAS_LOSS == 1u) {
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
    if (thread == 0u && group < GROUPS) {
      put_total(group, values[0], flags[0] != 0u, used);
    }
  }
}
