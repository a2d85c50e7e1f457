// RMSprop on one element.
//
//   g <- g + weight_decay * p
//   q <- alpha * q + (1 - alpha) * g * g
//   d <- g / (sqrt(spread(i, g, q, s)) + eps)      spread is q, or centered: q - a * a with a <- alpha * a + (1 - alpha) * g
//   p <- p - lr * with_momentum(i, d, s)           d, or with a momentum buffer b: b <- momentum * b + d
//
// numerics  q - a * a is a variance and no less than 0 but for rounding, so it is kept from going below; PyTorch's
//           becomes NaN there.
// source    PyTorch 1.13, torch/optim/rmsprop.py, _single_tensor_rmsprop, in its order of operations.

fn update(i: u32, s: Settings) {
  let value = param[i];
  let g = scaled(i, s) + s.weight_decay * value;
  let q = s.alpha * square_avg[i] + s.one_minus_alpha * g * g;
  square_avg[i] = q;
  let d = g / (sqrt(spread(i, g, q, s)) + s.eps);
  param[i] = value - s.lr * with_momentum(i, d, s);
}
