// One block of gradients as whole numbers, 4 elements at a time, added to those of the step so far.

// The largest mark among the elements of the block.
fn encode_block(block: u32, is_first: bool) -> u32 {
  let scale = power_of_two(clamp(27 - exponents[block], -126, 126));
  let all = vec4<u32>(0x7f800000u);
  var largest = vec4<u32>();
  for (var i = block * (BLOCK / 4u); i < min((block + 1u) * (BLOCK / 4u), VECTORS); i++) {
    let bits = gradient[i];
    let rounded = round(bitcast<vec4<f32>>(bits) * scale);
    let fits = abs(rounded) < vec4<f32>(2147483648.0);
    let value = select(vec4<i32>(), vec4<i32>(rounded), fits);
    let unfit = select(vec4<u32>(UNFIT), vec4<u32>(NOT_FINITE), (bits & all) == all);
    let mark = select(unfit, vec4<u32>(abs(value)) >> vec4<u32>(8u), fits);
    total[i] = select(total[i], vec4<i32>(), vec4<bool>(is_first)) + value;
    largest = max(largest, mark);
  }
  return max(max(largest.x, largest.y), max(largest.z, largest.w));
}
