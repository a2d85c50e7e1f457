// y[o, i] = sum over r of x[o, r, i]
// x: [OUTER, REDUCED, INNER]   y: [OUTER, INNER]
// One invocation makes one element of y; invocations past the end write nothing.
// Numerics: added in order of r, in f32.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = (group.y * GROUPS_X + group.x) * 64u + lane;
  if (output >= OUTER * INNER) { return; }
  let first = (output / INNER) * (REDUCED * INNER) + output % INNER;
  var total = 0.0;
  for (var r = 0u; r < REDUCED; r++) {
    total += x[first + r * INNER];
  }
  y[output] = total;
}
