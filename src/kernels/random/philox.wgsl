// Philox4x32-10: the twin of src/util/random.ts, word for word.
//
//   philox(counter, key) -> 4 random words; a pure function, so nothing is stored and any part can be made again.
//
// WGSL has no 64-bit product: the high half is put together from 16-bit parts, exactly.
// source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

fn philox_high(a: u32, b: u32) -> u32 {
  let a_low = a & 0xffffu;
  let a_high = a >> 16u;
  let b_low = b & 0xffffu;
  let b_high = b >> 16u;
  let middle = a_high * b_low + ((a_low * b_low) >> 16u);
  let carry = a_low * b_high + (middle & 0xffffu);
  return a_high * b_high + (middle >> 16u) + (carry >> 16u);
}

fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
  var x = counter;
  var k = key;
  for (var round = 0u; round < 10u; round++) {
    let high0 = philox_high(0xd2511f53u, x.x);
    let low0 = 0xd2511f53u * x.x;
    let high1 = philox_high(0xcd9e8d57u, x.z);
    let low1 = 0xcd9e8d57u * x.z;
    x = vec4<u32>(high1 ^ x.y ^ k.x, low1, high0 ^ x.w ^ k.y, low0);
    k = k + vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return x;
}
