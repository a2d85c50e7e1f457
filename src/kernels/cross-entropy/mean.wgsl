// Shared by the cross entropy shaders: the bits of a mean, and of a partial sum that may be spoilt.
//
// Spoilt values (a target outside 0..C-1) travel as the bits of a NaN in u32 storage, and are recognized by them:
// shader compilers may assume that f32 arithmetic never sees a NaN.

const NAN_BITS = 0x7fc00000u;
const LOWEST = -0x1.fffffep+127f;

fn is_nan_bits(bits: u32) -> bool {
  return (bits & 0x7fffffffu) > 0x7f800000u;
}

fn value_bits(value: f32, is_bad: bool) -> u32 {
  return select(bitcast<u32>(value), NAN_BITS, is_bad);
}

/** mean_of_nothing(), as bits, is linked in. */
fn mean_bits(total: f32, is_bad: bool, used: u32) -> u32 {
  if (used == 0u) {
    return mean_of_nothing();
  }
  return value_bits(total / f32(used), is_bad);
}
