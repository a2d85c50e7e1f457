// One block of gradients as whole numbers, 4 elements at a time, added to those of the step so far.

const MAGNITUDE = vec4<u32>(0x7fffffffu);

fn whole(i: u32, scale: f32) -> vec4<f32> {
  return round(bitcast<vec4<f32>>(gradient[i]) * scale);
}

// The largest mark among the elements of the block.
fn encode_block(block: u32, is_first: bool) -> u32 {
  let scale = power_of_two(clamp(27 - exponents[block], -126, 126));
  let begin = block * (BLOCK / 4u);
  let end = min(begin + BLOCK / 4u, VECTORS);
  let kept = vec4<i32>(select(-1, 0, is_first));
  // Floats without their signs are in the order of their bits, and those that are not finite come last.
  var magnitudes = vec4<u32>();
  // Four vectors a turn take 0.8 of the time of one.
  var i = begin;
  for (; i + 3u < end; i += 4u) {
    magnitudes = max(magnitudes, gradient[i] & MAGNITUDE);
    magnitudes = max(magnitudes, gradient[i + 1u] & MAGNITUDE);
    magnitudes = max(magnitudes, gradient[i + 2u] & MAGNITUDE);
    magnitudes = max(magnitudes, gradient[i + 3u] & MAGNITUDE);
  }
  for (; i < end; i++) {
    magnitudes = max(magnitudes, gradient[i] & MAGNITUDE);
  }
  let magnitude = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
  let largest = round(bitcast<f32>(magnitude) * scale);
  i = begin;
  if (magnitude < 0x7f800000u && largest < 2147483648.0) {
    for (; i + 3u < end; i += 4u) {
      total[i] = (total[i] & kept) + vec4<i32>(whole(i, scale));
      total[i + 1u] = (total[i + 1u] & kept) + vec4<i32>(whole(i + 1u, scale));
      total[i + 2u] = (total[i + 2u] & kept) + vec4<i32>(whole(i + 2u, scale));
      total[i + 3u] = (total[i + 3u] & kept) + vec4<i32>(whole(i + 3u, scale));
    }
    for (; i < end; i++) {
      total[i] = (total[i] & kept) + vec4<i32>(whole(i, scale));
    }
    return u32(largest) >> 8u;
  }
  for (; i < end; i++) {
    let fits = abs(whole(i, scale)) < vec4<f32>(2147483648.0);
    total[i] = (total[i] & kept) + select(vec4<i32>(), vec4<i32>(whole(i, scale)), fits);
  }
  return select(UNFIT, NOT_FINITE, magnitude >= 0x7f800000u);
}
