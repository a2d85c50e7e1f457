// A norm's sum over elements START .. START + LENGTH of a flat tensor, and whether any of them is infinite or NaN.
//
// bindings  grad: N; put(group, value, flag) and the norm's term(x) and join(a, b) are linked in.
// threads   group g takes PER_GROUP elements; thread t of it t, t + THREADS, ...; then a tree over threads.
// numerics  a fixed order of additions. Infinite and NaN are told by their bits, since WGSL lets a compiler assume that there
//           are none.

var<workgroup> values: array<f32, THREADS>;
var<workgroup> flags: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let group = group_id.y * GROUPS_X + group_id.x;
  var value = 0.0;
  var flag = 0u;
  if (group < GROUPS) {
    let end = min((group + 1u) * PER_GROUP, LENGTH);
    for (var i = group * PER_GROUP + thread; i < end; i += THREADS) {
      let x = grad[START + i];
      value = join(value, term(x));
      flag |= select(0u, 1u, (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
    }
  }
  values[thread] = value;
  flags[thread] = flag;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) {
      values[thread] = join(values[thread], values[thread + stride]);
      flags[thread] |= flags[thread + stride];
    }
    workgroupBarrier();
  }
  if (thread == 0u && group < GROUPS) {
    put(group, values[0], f32(flags[0]));
  }
}
