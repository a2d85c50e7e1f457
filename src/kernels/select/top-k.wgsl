// The K first elements of each row of [outer, N, inner] in order, and where they were.
//
//   place 0 is the element with the largest key, place j + 1 the largest of those after place j;
//   of equal keys the lower index comes first
//
// bindings  x (as bits), values: [outer, K, inner] (as bits), indices: the same (i32).
// threads   LANES threads a row, THREADS / LANES rows a group; lane l looks at c = l, l + LANES, ..., K times.
// numerics  exact: floats are compared as ordered integers. key_of is linked in.
// cost      N K reads a row; made for small K.

var<workgroup> lane_keys: array<u32, THREADS>;
var<workgroup> lane_places: array<u32, THREADS>;

/// Bits of a float as an unsigned integer of the same order; -0 counts as 0, NaN as the largest.
fn order_of(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xffffffffu; }
  if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.y * GROUPS_X + group.x) * (THREADS / LANES) + thread / LANES;
  let lane = thread % LANES;
  let is_row = row < ROWS;
  let first = (row / INNER) * (N * INNER) + row % INNER;
  let first_out = (row / INNER) * (K * INNER) + row % INNER;
  var last_key = 0xffffffffu;
  var last_place = 0u;
  for (var j = 0u; j < K; j++) {
    var key = 0u;
    var place = N;
    if (is_row) {
      for (var c = lane; c < N; c += LANES) {
        let own = key_of(x[first + c * INNER]);
        let is_after = j == 0u || own < last_key || (own == last_key && c > last_place);
        if (is_after && (place == N || own > key)) {
          key = own;
          place = c;
        }
      }
    }
    if (LANES > 1u) {
      lane_keys[thread] = key;
      lane_places[thread] = place;
      workgroupBarrier();
      for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
        if (lane < stride) {
          let other = lane_keys[thread + stride];
          let other_place = lane_places[thread + stride];
          let own_place = lane_places[thread];
          let own = lane_keys[thread];
          if (other_place < N && (own_place == N || other > own || (other == own && other_place < own_place))) {
            lane_keys[thread] = other;
            lane_places[thread] = other_place;
          }
        }
        workgroupBarrier();
      }
      key = lane_keys[thread - lane];
      place = lane_places[thread - lane];
      workgroupBarrier();
    }
    if (is_row && lane == 0u) {
      values[first_out + j * INNER] = x[first + place * INNER];
      indices[first_out + j * INNER] = i32(place);
    }
    last_key = key;
    last_place = place;
  }
}
