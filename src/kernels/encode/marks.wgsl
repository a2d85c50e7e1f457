// The mark of a block of gradients: the largest magnitude among its whole numbers, or what does not fit.

const BLOCK = 256u;
const UNFIT = 1u << 23u;
const NOT_FINITE = 1u << 25u;

fn power_of_two(exponent: i32) -> f32 {
  return bitcast<f32>(u32(exponent + 127) << 23u);
}

fn note(block: u32, largest: u32, is_first: bool) {
  let own = select(i32(largest) + 1, -i32(largest), largest == NOT_FINITE);
  marks[block] = select(marks[block], 0, is_first) + own;
}
