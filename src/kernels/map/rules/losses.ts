import type { lossTerms } from '../../scalar/losses.ts'
import type { Step } from '../../steps.ts'
import { c, i, type Rule, type RuleContext, s, step } from './rule.ts'

/** The gradients of a function of a - b: `steps` over dy, a and b, and their negative. */
const ofDifference =
  (steps: (context: RuleContext) => readonly Step[]): Rule =>
  (context) => {
    const { dy, args, chain } = context
    const own = steps(context)
    return [
      () => chain(own, dy, args[0], args[1]),
      () => chain([...own, step('neg', s(own.length - 1))], dy, args[0], args[1]),
    ]
  }

export const lossRules: Record<keyof typeof lossTerms, Rule> = {
  squaredError: ofDifference(() => [
    step('sub', i(1), i(2)),
    step('mul', s(0), c(2)),
    step('mul', i(0), s(1)),
  ]),
  absoluteError: ofDifference(() => [
    step('sub', i(1), i(2)),
    step('sign', s(0)),
    step('mul', i(0), s(1)),
  ]),
  huber: ofDifference(({ args: [, , delta] }) => [
    step('sub', i(1), i(2)),
    step('clamp', s(0), c(-(delta as number)), c(delta as number)),
    step('mul', i(0), s(1)),
  ]),
  bceLogits: ({ dy, args: [a, b], chain }) => [
    () =>
      chain([step('sigmoid', i(1)), step('sub', s(0), i(2)), step('mul', i(0), s(1))], dy, a, b),
    () => chain([step('mul', i(0), i(1)), step('neg', s(0))], dy, a),
  ],
  // By a: 1 - b - (1 + (weight - 1) b) sigmoid(-a). By b: -a + (weight - 1) softplus(-a).
  bceLogitsWeighted: ({ dy, args: [a, b, weight], chain }) => [
    () =>
      chain(
        [
          step('neg', i(1)),
          step('sigmoid', s(0)),
          step('sub', i(3), c(1)),
          step('mul', s(2), i(2)),
          step('add', s(3), c(1)),
          step('mul', s(4), s(1)),
          step('sub', c(1), i(2)),
          step('sub', s(6), s(5)),
          step('mul', i(0), s(7)),
        ],
        dy,
        a,
        b,
        weight,
      ),
    () =>
      chain(
        [
          step('neg', i(1)),
          step('softplus', s(0), c(1), c(20)),
          step('sub', i(2), c(1)),
          step('mul', s(2), s(1)),
          step('sub', s(3), i(1)),
          step('mul', i(0), s(4)),
        ],
        dy,
        a,
        weight,
      ),
  ],
  bce: ({ dy, args: [a, b], chain }) => [
    () =>
      chain(
        [
          step('sub', c(1), i(1)),
          step('mul', i(1), s(0)),
          step('clampMin', s(1), c(1e-12)),
          step('sub', i(1), i(2)),
          step('div', s(3), s(2)),
          step('mul', i(0), s(4)),
        ],
        dy,
        a,
        b,
      ),
    () =>
      chain(
        [
          step('sub', c(1), i(1)),
          step('log', s(0)),
          step('log', i(1)),
          step('sub', s(1), s(2)),
          step('mul', i(0), s(3)),
        ],
        dy,
        a,
      ),
  ],
  klDiv: ({ dy, args: [a, b], chain }) => [
    () => chain([step('mul', i(0), i(1)), step('neg', s(0))], dy, b),
    () =>
      chain(
        [
          step('log', i(2)),
          step('add', s(0), c(1)),
          step('sub', s(1), i(1)),
          step('mul', i(0), s(2)),
        ],
        dy,
        a,
        b,
      ),
  ],
  klDivLog: ({ dy, args: [a, b], chain }) => [
    () => chain([step('exp', i(1)), step('mul', i(0), s(0)), step('neg', s(1))], dy, b),
    () =>
      chain(
        [
          step('exp', i(2)),
          step('sub', i(2), i(1)),
          step('add', s(1), c(1)),
          step('mul', s(0), s(2)),
          step('mul', i(0), s(3)),
        ],
        dy,
        a,
        b,
      ),
  ],
}
