// One block of gradients as whole numbers, added to those of the step so far. Lane 0 to LANES - 1 take its elements in turn.

struct Encoded {
  value: i32,
  // Of the magnitude, or one of the two above.
  mark: u32,
}

fn encoded(bits: u32, scale: f32) -> Encoded {
  // By its bits: a compiler may take all floats for finite.
  if ((bits & 0x7f800000u) == 0x7f800000u) {
    return Encoded(0, NOT_FINITE);
  }
  let rounded = round(bitcast<f32>(bits) * scale);
  if (abs(rounded) >= 2147483648.0) {
    return Encoded(0, UNFIT);
  }
  let value = i32(rounded);
  return Encoded(value, u32(abs(value)) >> 8u);
}

// The largest mark among the elements of the block that this lane takes.
fn encode_lane(block: u32, lane: u32, is_first: bool) -> u32 {
  let scale = power_of_two(clamp(27 - exponents[block], -126, 126));
  var largest = 0u;
  for (var i = block * BLOCK + lane; i < min((block + 1u) * BLOCK, LENGTH); i += LANES) {
    let one = encoded(gradient[i], scale);
    total[i] = select(total[i], 0, is_first) + one.value;
    largest = max(largest, one.mark);
  }
  return largest;
}
