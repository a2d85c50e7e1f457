/**
 * The error function to float32: z P(z^2) / Q(z^2) on -4..4, and 1 beyond, where 1 - erf is below half a rounding.
 *
 * source: the rational approximation of Eigen's generic_fast_erf_float; largest error 3e-7 relative.
 */
const numerator = [
  -1.60960333262415e-2, -2.95459980854025e-3, -7.34990630326855e-4, -5.69250639462346e-5,
  -2.10102402082508e-6, 2.77068142495902e-8, -2.72614225801306e-10,
]
const denominator = [
  -1.42647390514189e-2, -7.37332916720468e-3, -1.68282697438203e-3, -2.13374055278905e-4,
  -1.45660718464996e-5,
]

const horner = (coefficients: readonly number[], x: string): string =>
  coefficients.reduceRight<string>(
    (text, value) => (text === '' ? `${value}` : `(${value} + ${x} * ${text})`),
    '',
  )

/** Lines that set `$erf` = erf(a). */
export const erfLines = (a: string): string[] => [
  `$z = clamp(${a}, -4.0, 4.0)`,
  '$zz = $z * $z',
  `$ratio = $z * ${horner(numerator, '$zz')} / ${horner(denominator, '$zz')}`,
  `$erf = select(clamp($ratio, -1.0, 1.0), sign(${a}), abs(${a}) >= 4.0)`,
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
