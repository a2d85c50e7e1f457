// AdamW on elements START .. START + LENGTH of flat tensors, in place.
//
//   p <- p * (1 - lr * WEIGHT_DECAY)
//   m <- BETA1 * m + (1 - BETA1) * g
//   v <- BETA2 * v + (1 - BETA2) * g * g
//   p <- p - (lr / bias1) * m / (sqrt(v) / sqrt(bias2) + EPS)
//
// bindings  param, m, v: N (updated), grad: N, all as VALUE, which is f32 or vec4<f32>; scalars holds lr and the bias
//           corrections 1 - beta^t of the step, reached by learning_rate(), bias_correction1(), bias_correction2().
//           START and COUNT are in units of VALUE.
// threads   one element of VALUE each; each checks the end.
// numerics  1 - BETA1 and 1 - BETA2 are rounded once, on the host, as PyTorch does. Division and square root differ
//           between GPUs in the last bit: that is why a rank updates only its own slice.
// source    PyTorch 1.13, torch/optim/adamw.py, _single_tensor_adamw, in its order of operations.

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let offset = (group.y * GROUPS_X + group.x) * THREADS + thread;
  if (offset >= COUNT) {
    return;
  }
  let i = START + offset;
  let rate = learning_rate();
  let g = grad[i];
  let next_m = BETA1 * m[i] + ONE_MINUS_BETA1 * g;
  let next_v = BETA2 * v[i] + ONE_MINUS_BETA2 * g * g;
  let denominator = sqrt(next_v) / sqrt(bias_correction2()) + EPS;
  let decayed = param[i] * (1.0 - rate * WEIGHT_DECAY);
  param[i] = decayed - (rate / bias_correction1()) * next_m / denominator;
  m[i] = next_m;
  v[i] = next_v;
}
