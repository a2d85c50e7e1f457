// The gradient of a choice of K elements a row: each goes back to where it was, the others get 0.
// dy, indices: [outer, K, inner]   dx: [outer, N, inner]
// One invocation makes one element of dx; it looks for its own place among the K chosen, which are distinct.

fn element(at: u32) -> f32 {
  let place = i32(at / INNER % N);
  let first = (at / (INNER * N)) * (K * INNER) + at % INNER;
  var result = 0.0;
  for (var j = 0u; j < K; j++) {
    let chosen = first + j * INNER;
    if (indices[chosen] == place) { result = dy[chosen]; }
  }
  return result;
}
