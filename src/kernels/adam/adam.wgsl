// Adam and AdamW on one element.
//
//   g <- g + l2 * p                            l2 is Adam's weight decay, 0 in AdamW
//   m <- beta1 * m + (1 - beta1) * g
//   v <- beta2 * v + (1 - beta2) * g * g
//   p <- decay * p - step_size * m / (sqrt(w) + eps)          decay is 1 - lr * AdamW's weight decay, 1 in Adam
//
// w is v, or with amsgrad the largest v so far: second_moment(i, v) is linked in.
//
// numerics  PyTorch divides sqrt(w) by sqrt(bias2), bias2 = 1 - beta2^t; here that root is in step_size =
//           lr * sqrt(bias2) / (1 - beta1^t) and in eps, both computed on the host in f64: a division and a square root less an
//           element. Division and square root differ between GPUs in the last bit: that is why a rank updates only its slice.
// source    PyTorch 1.13, torch/optim/adam.py and adamw.py.

fn update(i: u32, s: Settings) {
  let value = param[i];
  let g = scaled(i, s) + s.l2 * value;
  let next_m = s.beta1 * m[i] + s.one_minus_beta1 * g;
  let next_v = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
  param[i] = s.decay * value - s.step_size * next_m / (sqrt(second_moment(i, next_v)) + s.eps);
  m[i] = next_m;
  v[i] = next_v;
}
