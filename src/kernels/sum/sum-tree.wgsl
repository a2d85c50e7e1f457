// y[o, i] = sum over r of x[o, r, i]
// x: [OUTER, REDUCED, INNER]   y: [OUTER, INNER]
// One workgroup makes one element of y: lane l adds r = l, l + 64, ..., then the lanes' partial sums are added pairwise.
// Numerics: the order depends on REDUCED alone, so results are the same on every run and adapter.

var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = group.y * GROUPS_X + group.x;
  if (output >= OUTER * INNER) { return; }
  let first = (output / INNER) * (REDUCED * INNER) + output % INNER;
  var total = 0.0;
  for (var r = lane; r < REDUCED; r += 64u) {
    total += x[first + r * INNER];
  }
  partial[lane] = total;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u) { y[output] = partial[0]; }
}
