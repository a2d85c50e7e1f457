// y[o, t, n] = sum over u <= t of x[o, u, n] (REVERSE: u >= t)
// x, y: [OUTER, SIZE, INNER]
// One invocation makes one line.
// Numerics: added in order, in f32 or i32: Element is linked in.

fn element(line: u32) {
  let first = line / INNER * (SIZE * INNER) + line % INNER;
  var total = Element();
  for (var t = 0u; t < SIZE; t++) {
    let at = first + select(t, SIZE - 1u - t, REVERSE == 1u) * INNER;
    total += x[at];
    y[at] = total;
  }
}
