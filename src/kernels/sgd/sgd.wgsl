// SGD on one element.
//
//   d <- g + weight_decay * p
//   d <- with_momentum(d, i, s)           linked in: d itself, or, with a momentum buffer b,
//          b <- momentum * b + grad_scale * d,  then  b  (plain)  or  d + momentum * b  (Nesterov)
//   p <- p - lr * d
//
// numerics  grad_scale is 1 on the first step and 1 - dampening later, over a buffer that starts as zeros:
//           the same bits as PyTorch's copy of the first gradient.
// source    PyTorch 1.13, torch/optim/sgd.py, _single_tensor_sgd, in its order of operations.

fn update(i: u32, s: Settings) {
  let value = param[i];
  param[i] = value - s.lr * with_momentum(scaled(i, s) + s.weight_decay * value, i, s);
}
