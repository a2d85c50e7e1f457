// y[o, k, i] = finish(load over the r of chunk k of [o, r, i], combined)
// load: [OUTER, REDUCED, INNER]   y: [OUTER, CHUNKS, INNER]; chunk k is r = k CHUNK .. (k + 1) CHUNK - 1
// One workgroup makes one element of y: lane l combines r = l, l + 64, ..., then the lanes' results are combined pairwise.
// Numerics: the order depends on REDUCED alone, so results are the same on every run and adapter.
// load, combine, element_of, value_of and finish are linked in.

var<workgroup> partial: array<Element, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = group.y * GROUPS_X + group.x;
  if (output >= OUTER * CHUNKS * INNER) { return; }
  let begin = (output / INNER % CHUNKS) * CHUNK;
  let end = min(begin + CHUNK, REDUCED);
  let first = (output / INNER / CHUNKS) * (REDUCED * INNER) + output % INNER;
  var total: Element = START;
  for (var r = begin + lane; r < end; r += 64u) {
    total = combine(total, element_of(load(first + r * INNER)));
  }
  partial[lane] = total;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] = combine(partial[lane], partial[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u) { y[output] = finish(value_of(partial[0])); }
}
