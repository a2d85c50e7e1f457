// y[o, t, n] = sum over u <= t of x[o, u, n] (REVERSE: u >= t), a workgroup a line.
// x, y: [OUTER, SIZE, INNER]
// Each of 64 lanes sums PART neighbours, the lanes' sums are added up, then each lane runs over its neighbours again.
// Numerics: in f32 or i32 (Element is linked in); each lane in order, lanes in order.

var<workgroup> sums: array<Element, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let line = group.y * GROUPS_X + group.x;
  if (line >= COUNT) { return; }
  let first = line / INNER * (SIZE * INNER) + line % INNER;
  let start = min(lane * PART, SIZE);
  let end = min(start + PART, SIZE);
  var own = Element();
  for (var t = start; t < end; t++) {
    own += x[first + select(t, SIZE - 1u - t, REVERSE == 1u) * INNER];
  }
  sums[lane] = own;
  workgroupBarrier();
  var total = Element();
  for (var before = 0u; before < lane; before++) { total += sums[before]; }
  for (var t = start; t < end; t++) {
    let at = first + select(t, SIZE - 1u - t, REVERSE == 1u) * INNER;
    total += x[at];
    y[at] = total;
  }
}
