// A position-dependent 64-bit hash of the bits of the first LENGTH elements, as two u32 lanes.
//
//   a(i) = mix_a(bits(x[i]) ^ mix_b(i))        b(i) = mix_b(bits(x[i]) + mix_a(~i))
//   hash = (sum_i a(i) mod 2^32, sum_i b(i) mod 2^32)
//
//   mix_a: z ^= z >> 16; z *= 0x7feb352d; z ^= z >> 15; z *= 0x846ca68b; z ^= z >> 16
//   mix_b: z ^= z >> 16; z *= 0x85ebca6b; z ^= z >> 13; z *= 0xc2b2ae35; z ^= z >> 16
//
// bindings  words: N (any 4-byte type, as its bits); put_hash(group, lanes) is linked in.
// threads   group g takes elements g * PER_GROUP and up; thread t of it t, t + THREADS, ...; then a tree over threads.
// numerics  integers only, and wrapping addition has no order, so every device and every layout gets the same hash.
//           For a fixed i both lanes map bits one to one, so a change of any one element always changes both.
// source    mix_a: Chris Wellons, "Prospecting for hash functions" (lowbias32). mix_b: Austin Appleby, MurmurHash3's
//           32-bit finalizer. The sum is ours.

var<workgroup> sums: array<vec2<u32>, THREADS>;

fn mix_a(start: u32) -> u32 {
  var z = start;
  z = (z ^ (z >> 16u)) * 0x7feb352du;
  z = (z ^ (z >> 15u)) * 0x846ca68bu;
  return z ^ (z >> 16u);
}

fn mix_b(start: u32) -> u32 {
  var z = start;
  z = (z ^ (z >> 16u)) * 0x85ebca6bu;
  z = (z ^ (z >> 13u)) * 0xc2b2ae35u;
  return z ^ (z >> 16u);
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let group = group_id.y * GROUPS_X + group_id.x;
  var sum = vec2<u32>(0u, 0u);
  if (group < GROUPS) {
    let end = min(LENGTH - group * PER_GROUP, PER_GROUP) + group * PER_GROUP;
    for (var i = group * PER_GROUP + thread; i < end; i += THREADS) {
      let bits = words[i];
      sum += vec2<u32>(mix_a(bits ^ mix_b(i)), mix_b(bits + mix_a(~i)));
    }
  }
  sums[thread] = sum;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) {
      sums[thread] += sums[thread + stride];
    }
    workgroupBarrier();
  }
  if (thread == 0u && group < GROUPS) {
    put_hash(group, sums[0]);
  }
}
