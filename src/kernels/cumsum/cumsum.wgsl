// y[o, t, n] = sum over u <= t of x[o, u, n] (REVERSE: u >= t)
// x, y: [OUTER, SIZE, INNER]
// One invocation makes one line, COUNT = OUTER*INNER of them in GROUPS_X-wide rows of workgroups; the excess returns at once.
// Numerics: added in order, in f32 or i32: Element is linked in.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let line = (group.y * GROUPS_X + group.x) * 64u + lane;
  if (line >= COUNT) { return; }
  let first = line / INNER * (SIZE * INNER) + line % INNER;
  var total = Element();
  for (var t = 0u; t < SIZE; t++) {
    let at = first + select(t, SIZE - 1u - t, REVERSE == 1u) * INNER;
    total += x[at];
    y[at] = total;
  }
}
