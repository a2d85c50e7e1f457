// SGD on elements START .. START + LENGTH of flat tensors, in place.
//
//   d <- g + WEIGHT_DECAY * p
//   d <- with_momentum(d, i)              linked in: d itself, or, with a momentum buffer b,
//          b <- MOMENTUM * b + gradient_scale() * d,  then  b  (plain)  or  d + MOMENTUM * b  (nesterov)
//   p <- p - lr * d
//
// bindings  param and, with momentum, buffer: N (updated), grad: N, all as VALUE, which is f32 or vec4<f32>; scalars
//           holds the learning rate and the gradient scale. START and COUNT are in units of VALUE.
// threads   one element of VALUE each; each checks the end.
// numerics  the gradient scale is 1 on the first step and 1 - dampening later, over a buffer that starts as zeros:
//           the same bits as PyTorch's copy of the first gradient.
// source    PyTorch 1.13, torch/optim/sgd.py, _single_tensor_sgd, in its order of operations.

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
  let value = param[i];
  param[i] = value - learning_rate() * with_momentum(grad[i] + WEIGHT_DECAY * value, i);
}
