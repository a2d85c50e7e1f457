// Adagrad on one element.
//
//   g   <- g + weight_decay * p
//   sum <- sum + g * g
//   p   <- p - lr * g / (sqrt(sum) + eps)             lr is decayed already, on the host
//
// source    PyTorch 1.13, torch/optim/adagrad.py, _single_tensor_adagrad, in its order of operations.

fn update(i: u32, s: Settings) {
  let value = param[i];
  let g = scaled(i, s) + s.weight_decay * value;
  let next = sum[i] + g * g;
  sum[i] = next;
  param[i] = value - s.lr * g / (sqrt(next) + s.eps);
}
