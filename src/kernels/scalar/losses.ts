import { log1pExp, log1pLines, scalarTable } from './scalar-function.ts'

/** The terms of elementwise losses; `a` is the prediction, `b` the target. */

/** PyTorch holds the logarithms of a binary cross entropy above this, so that a wrong certainty costs 100 and not infinity. */
const lowestLog = -100

export const lossTerms = scalarTable({
  squaredError: {
    arity: 2,
    wgsl: (a, b) => [`$d = ${a} - ${b}`, '$d * $d'],
    reference: (a, b) => (a - b) ** 2,
  },
  absoluteError: {
    arity: 2,
    wgsl: (a, b) => `abs(${a} - ${b})`,
    reference: (a, b) => Math.abs(a - b),
  },
  /** d^2 / 2 up to |d| = delta, delta (|d| - delta / 2) beyond. */
  huber: {
    arity: 3,
    wgsl: (a, b, delta) => [
      `$d = abs(${a} - ${b})`,
      `select(${delta} * ($d - 0.5 * ${delta}), 0.5 * $d * $d, $d <= ${delta})`,
    ],
    reference: (a, b, delta) => {
      const d = Math.abs(a - b)
      return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta)
    },
  },
  /** -b log sigmoid(a) - (1 - b) log(1 - sigmoid(a)) */
  bceLogits: {
    arity: 2,
    wgsl: (a, b) => [
      ...log1pLines(a),
      // What is large cancels before what is small is added: a sure and right answer has a loss.
      `((1.0 - ${b}) * ${a} + max(-${a}, 0.0) - $less) + $u`,
    ],
    reference: (a, b) => (1 - b) * a + Math.max(-a, 0) + log1pExp(a),
  },
  /** The same with the positive part weighted. */
  bceLogitsWeighted: {
    arity: 3,
    wgsl: (a, b, weight) => [
      ...log1pLines(a),
      `$weight = 1.0 + (${weight} - 1.0) * ${b}`,
      `((1.0 - ${b}) * ${a} + $weight * max(-${a}, 0.0)) + $weight * ($u - $less)`,
    ],
    reference(a, b, weight) {
      const positive = 1 + (weight - 1) * b
      return (1 - b) * a + positive * Math.max(-a, 0) + positive * log1pExp(a)
    },
  },
  /** -b log a - (1 - b) log(1 - a) for a probability a. */
  bce: {
    arity: 2,
    wgsl: (a, b) => [
      `$no = 1.0 - ${a}`,
      `$logYes = max_of(log_of(${a}), ${lowestLog}.0)`,
      `$logNo = max_of(log_of($no), ${lowestLog}.0)`,
      `-(${b} * $logYes + (1.0 - ${b}) * $logNo)`,
    ],
    reference: (a, b) =>
      -(b * Math.max(Math.log(a), lowestLog) + (1 - b) * Math.max(Math.log(1 - a), lowestLog)),
  },
  /** b log b - b a for a log-probability a; b log b is 0 where b is 0. */
  klDiv: {
    arity: 2,
    wgsl: (a, b) => `(select(${b} * log_of(${b}), 0.0, ${b} == 0.0) - ${b} * ${a})`,
    reference: (a, b) => (b === 0 ? 0 : b * Math.log(b)) - b * a,
  },
  /** The same for a target that is a logarithm too. */
  klDivLog: {
    arity: 2,
    wgsl: (a, b) => `exp(${b}) * (${b} - ${a})`,
    reference: (a, b) => Math.exp(b) * (b - a),
  },
})
