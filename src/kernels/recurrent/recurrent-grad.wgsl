// One workgroup a sequence, from its last step to its first. A lane owns the states j, j + 1, ... of PER_LANE, whose gradients it carries
// in dh0 (and dc0): what they hold at the end is what their names say.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let b = group.y * GROUPS_X + group.x;
  if (b >= B) {
    return;
  }
  let length = length_of(b);
  for (var step = 0u; step < T; step++) {
    let s = T - 1u - step;
    let row = row_of(time_of(s, length), b);
    for (var first = lane * PER_LANE; first < H; first += LANES * PER_LANE) {
      for (var j = first; j < first + PER_LANE; j++) {
        if (s < length) {
          cell_gradient(row, row_of(time_of(s - min(s, 1u), length), b), b, s, j);
        } else {
          clear_gradient(row, j);
        }
      }
    }
    // The sums below read what all lanes wrote above.
    storageBarrier();
    if (s < length) {
      for (var first = lane * PER_LANE; first < H; first += LANES * PER_LANE) {
        add_recurrent(row, b, first);
      }
    }
  }
}
