// How many rows have their target among the K_LARGEST largest logits.
//
//   place(r) = #{ c : x[r,c] > x[r,t] } + #{ c < t : x[r,c] = x[r,t] }      correct(r) = place(r) < K_LARGEST
//   put_sum(group, sum over the group's rows r < count of correct(r))
//
// bindings  logits: R C, targets: R (i32); counted_rows() and put_sum(group, sum) are linked in.
// threads   a group takes THREADS * STEPS rows, thread t of it the rows t, t + THREADS, ...; then a tree over threads.
// numerics  counts are u32, so exact and free of order. Ties go to the lower index. A target outside 0..C-1 or a NaN
//           at the target is not correct.
// source    ours: a rank by counting needs no sort.

var<workgroup> sums: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let group = group_id.y * GROUPS_X + group_id.x;
  let count = counted_rows();
  var sum = 0u;
  for (var step = 0u; step < STEPS; step++) {
    let row = (group * STEPS + step) * THREADS + thread;
    if (row >= count) {
      break;
    }
    let label = u32(targets[row]);
    if (label >= C) {
      continue;
    }
    let first = row * C;
    let chosen = logits[first + label];
    var place = 0u;
    for (var c = 0u; c < C; c++) {
      let other = logits[first + c];
      place += u32(other > chosen || (other == chosen && c < label));
    }
    sum += u32(place < K_LARGEST && !is_nan(chosen));
  }
  sums[thread] = sum;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) {
      sums[thread] += sums[thread + stride];
    }
    workgroupBarrier();
  }
  if (thread == 0u && group < GROUPS) {
    put_sum(group, sums[0]);
  }
}
