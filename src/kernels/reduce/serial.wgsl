// y[o, i] = finish(load over r of [o, r, i], combined)
// load: [OUTER, REDUCED, INNER]   y: [OUTER, INNER]
// One invocation makes one element of y; invocations past the end write nothing.
// Numerics: combined in order of r, in f32. load, combine, element_of, value_of and finish are linked in.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = (group.y * GROUPS_X + group.x) * 64u + lane;
  if (output >= OUTER * INNER) { return; }
  let first = (output / INNER) * (REDUCED * INNER) + output % INNER;
  var total: Element = START;
  for (var r = 0u; r < REDUCED; r++) {
    total = combine(total, element_of(load(first + r * INNER)));
  }
  y[output] = finish(value_of(total));
}
