// One workgroup a sequence, which loops over the steps, so the whole layer is one dispatch.
// Before it come the cell's `store_step`, and `products` with its type, after the weights' element type.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let b = group.y * GROUPS_X + group.x;
  if (b >= B) {
    return;
  }
  let length = length_of(b);
  if (length > 0u) {
    let first = row_of(time_of(0u, length), b);
    for (var j = lane; j < H; j += LANES) {
      hidden[first * H + j] = h0[b * H + j];
    }
  }
  for (var s = 0u; s < T; s++) {
    // The state before this step was written by all lanes.
    storageBarrier();
    let row = row_of(time_of(s, length), b);
    for (var j = lane; j < H; j += LANES) {
      if (s < length) {
        let h = next_state(row, row_of(time_of(s - min(s, 1u), length), b), b, s, j);
        y[row * H + j] = h;
        if (s + 1u < length) {
          hidden[row_of(time_of(s + 1u, length), b) * H + j] = h;
        }
      } else {
        y[row * H + j] = 0.0;
        hidden[row * H + j] = 0.0;
        clear_saved(row, j);
      }
    }
  }
}
