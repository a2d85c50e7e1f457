// Lion on one element.
//
//   p <- decay * p - lr * sign(beta1 * m + (1 - beta1) * g)          decay is 1 - lr * weight decay
//   m <- beta2 * m + (1 - beta2) * g
//
// source    Chen et al., arXiv 2302.06675, program 1.

fn update(i: u32, s: Settings) {
  let g = scaled(i, s);
  let before = m[i];
  param[i] = s.decay * param[i] - s.lr * sign(s.beta1 * before + s.one_minus_beta1 * g);
  m[i] = s.beta2 * before + s.one_minus_beta2 * g;
}
