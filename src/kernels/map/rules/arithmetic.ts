import type { arithmetic, comparisons } from '../../scalar/arithmetic.ts'
import { c, i, none, nought, type Rule, s, singleStep, step, zero } from './rule.ts'

/** dy unless a is below b, half of it where they are equal; beside NaN both sides get all of it, as in PyTorch. */
const larger = [
  step('lt', i(1), i(2)),
  step('eq', i(1), i(2)),
  step('mul', s(1), c(0.5)),
  step('sub', c(1), s(2)),
  step('mul', i(0), s(3)),
  step('where', s(0), c(0), s(4)),
]

export const arithmeticRules: Record<keyof typeof arithmetic, Rule> = {
  add: ({ dy }) => [() => dy, () => dy],
  sub: ({ dy, chain }) => [() => dy, () => chain(singleStep('neg', 1), dy)],
  mul: ({ dy, args: [a, b], chain }) => [
    () => chain(singleStep('mul', 2), dy, b),
    () => chain(singleStep('mul', 2), dy, a),
  ],
  div: ({ dy, args: [, b], y, chain }) => [
    () => chain(singleStep('div', 2), dy, b),
    // d(a/b)/db = -y/b
    () => chain([step('mul', i(0), i(1)), step('div', s(0), i(2)), step('neg', s(1))], dy, y, b),
  ],
  neg: ({ dy, chain }) => [() => chain(singleStep('neg', 1), dy)],
  square: ({ dy, args: [a], chain }) => [
    () => chain([step('mul', i(1), c(2)), step('mul', i(0), s(0))], dy, a),
  ],
  exp: ({ dy, y, chain }) => [() => chain(singleStep('mul', 2), dy, y)],
  log: ({ dy, args: [a], chain }) => [() => chain(singleStep('div', 2), dy, a)],
  sqrt: ({ dy, y, chain }) => [
    () => chain([step('mul', i(1), c(2)), step('div', i(0), s(0))], dy, y),
  ],
  root: ({ dy, y, chain }) => [
    () => chain([step('mul', i(1), c(2)), step('divOrZero', i(0), s(0))], dy, y),
  ],
  // -y^3 / 2
  rsqrt: ({ dy, y, chain }) => [
    () =>
      chain(
        [
          step('square', i(1)),
          step('mul', s(0), i(1)),
          step('mul', s(1), c(-0.5)),
          step('mul', i(0), s(2)),
        ],
        dy,
        y,
      ),
  ],
  pow: ({ dy, args: [a, b], y, chain }) => [
    // b a^(b - 1), and 0 for an exponent of 0 whatever the base.
    () =>
      typeof b === 'number'
        ? chain(
            [
              step('pow', i(1), c(b - 1)),
              step('mul', s(0), c(b)),
              b === 0 ? nought : step('mul', i(0), s(1)),
            ],
            dy,
            a,
          )
        : chain(
            [
              step('sub', i(2), c(1)),
              step('pow', i(1), s(0)),
              step('mul', s(1), i(2)),
              step('mul', i(0), s(2)),
              step('where', i(2), s(3), c(0)),
            ],
            dy,
            a,
            b,
          ),
    // y log a, and 0 at a base of 0 with an exponent from 0 up.
    () =>
      typeof a === 'number'
        ? a === 0
          ? // Infinite below an exponent of 0, and 0 from there up.
            chain(
              [
                step('mul', i(1), c(Number.NEGATIVE_INFINITY)),
                step('ge', i(2), c(0)),
                step('where', s(1), c(0), s(0)),
                step('mul', i(0), s(2)),
              ],
              dy,
              y,
              b,
            )
          : chain([step('mul', i(1), c(Math.log(a))), step('mul', i(0), s(0))], dy, y)
        : chain(
            [
              step('log', i(2)),
              step('mul', i(1), s(0)),
              step('eq', i(2), c(0)),
              step('ge', i(3), c(0)),
              step('mul', s(2), s(3)),
              step('where', s(4), c(0), s(1)),
              step('mul', i(0), s(5)),
            ],
            dy,
            y,
            a,
            b,
          ),
  ],
  abs: ({ dy, args: [a], chain }) => [
    () => chain([step('sign', i(1)), step('mul', i(0), s(0))], dy, a),
  ],
  sign: zero,
  floor: zero,
  roundHalf: ({ dy }) => [() => dy],
  maximum: ({ dy, args: [a, b], chain }) => [
    () => chain(larger, dy, a, b),
    () => chain(larger, dy, b, a),
  ],
  minimum: ({ dy, args: [a, b], chain }) => [
    () => chain(larger, dy, b, a),
    () => chain(larger, dy, a, b),
  ],
  // The bounds themselves pass the gradient.
  clamp: ({ dy, args: [a, low, high], chain }) => [
    () =>
      chain(
        [
          step('ge', i(1), i(2)),
          step('le', i(1), i(3)),
          step('mul', s(0), s(1)),
          step('where', s(2), i(0), c(0)),
        ],
        dy,
        a,
        low,
        high,
      ),
  ],
  clampMin: ({ dy, args: [a, low], chain }) => [
    () => chain([step('ge', i(1), i(2)), step('where', s(0), i(0), c(0))], dy, a, low),
  ],
  clampMax: ({ dy, args: [a, high], chain }) => [
    () => chain([step('le', i(1), i(2)), step('where', s(0), i(0), c(0))], dy, a, high),
  ],
  divOrZero: ({ dy, args: [, b], y, chain }) => [
    () => chain(singleStep('divOrZero', 2), dy, b),
    () =>
      chain([step('mul', i(0), i(1)), step('divOrZero', s(0), i(2)), step('neg', s(1))], dy, y, b),
  ],
  where: ({ dy, args: [condition], chain }) => [
    undefined,
    () => chain([step('where', i(1), i(0), c(0))], dy, condition),
    () => chain([step('where', i(1), c(0), i(0))], dy, condition),
  ],
}

export const comparisonRules: Record<keyof typeof comparisons, Rule> = {
  eq: none,
  ne: none,
  lt: none,
  le: none,
  gt: none,
  ge: none,
}
