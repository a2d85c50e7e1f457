// y = x with pairs of elements turned: (a, b) becomes (a cos - b sin, a sin + b cos) by the angle of the row's position.
//
// bindings  x: rows of D, table: (cos, sin) of HALF pairs by position, y: as x
// element   one pair
// Row r is at position r / INNER % POSITIONS; of each INNER neighbouring rows the first TURNED are turned, the others copied.
// Element pairs are (i, i + HALF), or (2 i, 2 i + 1) where PAIR is 1. SIGN is -1 for the gradient, which turns back.
// source: Su et al., RoFormer, arXiv 2104.09864.

fn element(at: u32) {
  let row = at / HALF;
  let pair = at % HALF;
  let first = row * 2u * HALF + select(pair, 2u * pair, PAIR == 1u);
  let second = first + select(HALF, 1u, PAIR == 1u);
  let a = x[first];
  let b = x[second];
  if (row % INNER >= TURNED) {
    y[first] = a;
    y[second] = b;
    return;
  }
  let angle = table[(row / INNER % POSITIONS) * HALF + pair];
  let sine = angle.y * SIGN;
  y[first] = a * angle.x - b * sine;
  y[second] = a * sine + b * angle.x;
}
