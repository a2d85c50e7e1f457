/**
 * The error function to float32: z + z N(z^2) up to 1.1875 and 1 - F(|z|)^8 beyond, where F is near the eighth root of erfc.
 *
 * So neither has a quotient, and what rounds in F counts little. Both by weighted least squares; within 1.8 ulp.
 */
const near = [
  0.1283792, -0.37612563, 0.11282881, -0.026826289, 0.005139925, -0.00076185825, 6.665153e-5,
]
const far = [
  0.51139265, -0.28242624, 0.01893825, 0.017198615, -0.002804732, -0.00064912403, 0.00018478866,
  2.9361781e-6, -3.4233287e-6,
]

const horner = (coefficients: readonly number[], x: string): string =>
  coefficients.reduceRight<string>(
    (text, value) => (text === '' ? `${value}` : `(${value} + ${x} * ${text})`),
    '',
  )

/** Lines that set `$isNear`, `$near` = erf(a) where that holds, and `$tail` = erfc(|a|) elsewhere. */
const partLines = (a: string): string[] => [
  `$z = clamp(${a}, -4.0, 4.0)`,
  '$zz = $z * $z',
  `$near = $z + $z * ${horner(near, '$zz')}`,
  '$c = abs($z) - 2.0',
  `$root = ${horner(far, '$c')}`,
  '$root2 = $root * $root',
  '$root4 = $root2 * $root2',
  '$tail = $root4 * $root4',
  '$isNear = abs($z) < 1.1875',
]

/** Lines that set `$erf` = erf(a). */
export const erfLines = (a: string): string[] => [
  ...partLines(a),
  `$erf = select(select(1.0 - $tail, $tail - 1.0, ${a} < 0.0), $near, $isNear)`,
]

/** Lines that set `$both` = 1 + erf(a), which keeps its digits where erf is near -1. */
export const erfPlusOneLines = (a: string): string[] => [
  ...partLines(a),
  `$rest = select($tail, 0.0, abs(${a}) >= 4.0)`,
  `$both = select(select(2.0 - $rest, $rest, ${a} < 0.0), 1.0 + $near, $isNear)`,
]

/**
 * The error function in float64.
 *
 * Its Taylor series where that does not cancel, else one minus a continued fraction of erfc; both to about 1e-13.
 */
export function erf(x: number): number {
  const size = Math.abs(x)
  if (size < 2.5) {
    let term = x
    let sum = x
    for (let n = 1; n < 80; n++) {
      term *= (-x * x) / n
      sum += term / (2 * n + 1)
    }
    return (2 / Math.sqrt(Math.PI)) * sum
  }
  let fraction = 0
  for (let n = 80; n > 0; n--) fraction = n / 2 / (size + fraction)
  return Math.sign(x) * (1 - Math.exp(-x * x) / (Math.sqrt(Math.PI) * (size + fraction)))
}
