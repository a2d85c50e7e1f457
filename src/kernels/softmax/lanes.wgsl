// Reductions over the LANES neighbouring threads of a row; every thread of the workgroup must call them.
// numerics  over lanes as a binary tree with halving strides, so the order is fixed.

const LOWEST = -0x1.fffffep+127f;
const HIGHEST = 0x1.fffffep+127f;

var<workgroup> lane_values: array<f32, THREADS>;

fn max_over_lanes(thread: u32, value: f32) -> f32 {
  if (LANES == 1u) { return value; }
  let lane = thread % LANES;
  lane_values[thread] = value;
  workgroupBarrier();
  for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
    if (lane < stride) { lane_values[thread] = max(lane_values[thread], lane_values[thread + stride]); }
    workgroupBarrier();
  }
  let result = lane_values[thread - lane];
  workgroupBarrier();
  return result;
}

fn sum_over_lanes(thread: u32, value: f32) -> f32 {
  if (LANES == 1u) { return value; }
  let lane = thread % LANES;
  lane_values[thread] = value;
  workgroupBarrier();
  for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
    if (lane < stride) { lane_values[thread] += lane_values[thread + stride]; }
    workgroupBarrier();
  }
  let result = lane_values[thread - lane];
  workgroupBarrier();
  return result;
}
