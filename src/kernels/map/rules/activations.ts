import { TabringError } from '../../../util/errors.ts'
import type { activations } from '../../scalar/activations.ts'
import { c, i, type Rule, s, singleStep, step } from './rule.ts'

/** A function that stands in gradients alone. */
const once =
  (name: string): Rule =>
  () => {
    throw new TabringError(
      'graph.misuse',
      `backward: ${name} has no second derivative, but the loss depends on its gradient. Keep gradients of this activation out of the loss.`,
    )
  }

export const activationRules: Record<keyof typeof activations, Rule> = {
  relu: ({ dy, y, chain }) => [() => chain(singleStep('reluGrad', 2), dy, y)],
  reluGrad: ({ dy, args: [, y], chain }) => [
    () => chain(singleStep('reluGrad', 2), dy, y),
    undefined,
  ],
  leakyRelu: ({ dy, args: [a, slope], chain }) => [
    () =>
      chain(
        [step('mul', i(0), i(2)), step('gt', i(1), c(0)), step('where', s(1), i(0), s(0))],
        dy,
        a,
        slope,
      ),
  ],
  sigmoid: ({ dy, y, chain }) => [
    () => chain([step('sub', c(1), i(1)), step('mul', i(1), s(0)), step('mul', i(0), s(1))], dy, y),
  ],
  tanh: ({ dy, y, chain }) => [
    () => chain([step('square', i(1)), step('sub', c(1), s(0)), step('mul', i(0), s(1))], dy, y),
  ],
  // 2 / sqrt(pi) exp(-a^2)
  erf: ({ dy, args: [a], chain }) => [
    () =>
      chain(
        [
          step('square', i(1)),
          step('neg', s(0)),
          step('exp', s(1)),
          step('mul', s(2), c(2 / Math.sqrt(Math.PI))),
          step('mul', i(0), s(3)),
        ],
        dy,
        a,
      ),
  ],
  gelu: ({ dy, args: [a], chain }) => [() => chain(singleStep('geluGrad', 2), dy, a)],
  geluGrad: once('geluGrad'),
  geluTanh: ({ dy, args: [a], chain }) => [() => chain(singleStep('geluTanhGrad', 2), dy, a)],
  geluTanhGrad: once('geluTanhGrad'),
  silu: ({ dy, args: [a], chain }) => [() => chain(singleStep('siluGrad', 2), dy, a)],
  siluGrad: once('siluGrad'),
  softplus: ({ dy, args: [a, beta, threshold], chain }) => [
    () =>
      chain(
        [
          step('mul', i(1), i(2)),
          step('sigmoid', s(0)),
          step('mul', i(0), s(1)),
          step('gt', s(0), i(3)),
          step('where', s(3), i(0), s(2)),
        ],
        dy,
        a,
        beta,
        threshold,
      ),
  ],
}
