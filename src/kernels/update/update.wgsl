// The frame of every update kernel: calls the rule's update(i, s) for elements START .. START + LENGTH of flat tensors.
//
// bindings  the rule's tensors as VALUE, which is f32 or vec4<f32>; scalars and, where there is one, control, both read
//           by settings(). START and COUNT are in units of VALUE.
// threads   each takes PER_THREAD elements of VALUE, THREADS apart, so that neighbours read neighbours; settings are
//           read once for all of them. Each element checks the end.
// numerics  elementwise, so that any cut into slices gives the same bits.

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  if (skips()) {
    return;
  }
  let s = settings();
  let first = (group.y * GROUPS_X + group.x) * (THREADS * PER_THREAD) + thread;
  for (var k = 0u; k < PER_THREAD; k++) {
    let offset = first + k * THREADS;
    if (offset < COUNT) {
      update(START + offset, s);
    }
  }
}
