import { tensorType } from '../../util/shape.ts'
import type { Case } from '../op.ts'
import type { ScalarFunctionName, StepArgument } from '../steps.ts'
import { c, i, type MapAttrs, s, singleStep, step } from './rules/rule.ts'

/** Shapes, broadcasts and chains, on functions that cost nothing. */
const shapeCases: readonly Case<MapAttrs>[] = [
  {
    name: 'add 5',
    inputs: [tensorType([5]), tensorType([5])],
    attrs: { steps: singleStep('add', 2) },
  },
  {
    name: 'add 3x37 + 37',
    inputs: [tensorType([3, 37]), tensorType([37])],
    attrs: { steps: singleStep('add', 2) },
  },
  {
    name: 'add 37 + 3x37',
    inputs: [tensorType([37]), tensorType([3, 37])],
    attrs: { steps: singleStep('add', 2) },
  },
  {
    name: 'sub 64x12 - 64x1',
    inputs: [tensorType([64, 12]), tensorType([64, 1])],
    attrs: { steps: singleStep('sub', 2) },
  },
  {
    name: 'sub 3x1 - 1x5',
    inputs: [tensorType([3, 1]), tensorType([1, 5])],
    attrs: { steps: singleStep('sub', 2) },
  },
  {
    name: 'mul 4x3x8 * 3x1',
    inputs: [tensorType([4, 3, 8]), tensorType([3, 1])],
    attrs: { steps: singleStep('mul', 2) },
  },
  {
    name: 'mul by a scalar',
    inputs: [tensorType([7, 36]), tensorType([])],
    attrs: { steps: singleStep('mul', 2) },
  },
  {
    name: 'mul x * x',
    inputs: [tensorType([130])],
    attrs: { steps: [step('mul', i(0), i(0))] },
  },
  {
    name: 'div 33x5',
    inputs: [tensorType([33, 5]), tensorType([33, 5])],
    attrs: { steps: singleStep('div', 2) },
  },
  { name: 'neg one element', inputs: [tensorType([1])], attrs: { steps: singleStep('neg', 1) } },
  {
    name: 'add scalars',
    inputs: [tensorType([]), tensorType([])],
    attrs: { steps: singleStep('add', 2) },
  },
  {
    name: 'relu huge',
    inputs: [tensorType([129])],
    attrs: { steps: singleStep('relu', 1) },
    fill: 'huge',
  },
  {
    name: 'mul huge',
    inputs: [tensorType([2, 64]), tensorType([64])],
    attrs: { steps: singleStep('mul', 2) },
    fill: 'huge',
  },
  {
    name: 'reluGrad at ties',
    inputs: [tensorType([8, 8]), tensorType([8, 8])],
    attrs: { steps: singleStep('reluGrad', 2) },
    fill: 'ties',
  },
  {
    name: 'relu of nothing',
    inputs: [tensorType([0, 4])],
    attrs: { steps: singleStep('relu', 1) },
  },
  { name: 'identity', inputs: [tensorType([9])], attrs: { steps: [] } },
  {
    name: 'integers, 6 + 4x6',
    inputs: [tensorType([6], 'i32'), tensorType([4, 6])],
    attrs: { steps: singleStep('eq', 2) },
    fill: 'ties',
    integerBelow: { 0: 3 },
  },
  {
    name: 'integers become f32, four at once',
    inputs: [tensorType([8], 'u32')],
    attrs: { steps: [] },
  },
  {
    name: 'chain relu(x + b) * s',
    inputs: [tensorType([10, 20]), tensorType([20]), tensorType([])],
    attrs: { steps: [step('add', i(0), i(1)), step('relu', s(0)), step('mul', s(1), i(2))] },
  },
  {
    name: 'to f16 of 67',
    inputs: [tensorType([67])],
    attrs: { steps: [], dtype: 'f16' },
  },
  {
    name: 'to f16 of huge ones',
    inputs: [tensorType([36])],
    attrs: { steps: [step('mul', i(0), c(20))], dtype: 'f16' },
    fill: 'huge',
  },
  {
    name: 'to f16 of tiny ones, rounded before',
    inputs: [tensorType([44])],
    attrs: { steps: [step('mul', i(0), c(1e-5)), step('roundHalf', s(0))], dtype: 'f16' },
  },
  {
    name: 'f16 3x5 + 5 to f16',
    inputs: [tensorType([3, 5], 'f16'), tensorType([5])],
    attrs: { steps: singleStep('add', 2), dtype: 'f16' },
  },
  {
    name: 'f16 6x8 * f16 6x1 to f16',
    inputs: [tensorType([6, 8], 'f16'), tensorType([6, 1], 'f16')],
    attrs: { steps: singleStep('mul', 2), dtype: 'f16' },
  },
  {
    name: 'f16 7x3 to f32',
    inputs: [tensorType([7, 3], 'f16')],
    attrs: { steps: [] },
    fill: 'huge',
  },
  {
    name: 'more than 65,535 workgroups',
    inputs: [tensorType([65_536 * 64 + 3])],
    attrs: { steps: singleStep('neg', 1) },
  },
]

/** One function over a tensor that is no multiple of 4 and one that is; `fills` says with what. */
const functionCases = (
  fn: ScalarFunctionName,
  args: readonly StepArgument[],
  ...fills: NonNullable<Case['fill']>[]
): Case<MapAttrs>[] => {
  const arity = args.filter((argument) => 'input' in argument).length
  const constants = args.flatMap((a) => ('constant' in a ? [a.constant] : []))
  return fills.map((fill, n) => ({
    name: [fn, ...constants, fill].join(' '),
    inputs: Array.from({ length: arity }, () => tensorType([n === 0 ? 67 : 36])),
    attrs: { steps: [step(fn, ...args)] },
    fill,
  }))
}

const x = [i(0)]
const xy = [i(0), i(1)]

/** Every function once at its own magnitudes, and at huge ones where that is where it would break. */
export const cases: readonly Case<MapAttrs>[] = [
  ...shapeCases,
  ...functionCases('exp', x, 'normal'),
  ...functionCases('log', x, 'positive', 'huge'),
  ...functionCases('sqrt', x, 'positive'),
  ...functionCases('root', x, 'positive'),
  ...functionCases('rsqrt', x, 'positive'),
  ...functionCases('square', x, 'normal', 'huge'),
  ...functionCases('abs', x, 'normal'),
  ...functionCases('sign', x, 'ties', 'normal'),
  ...functionCases('floor', x, 'huge'),
  ...functionCases('pow', [i(0), c(3)], 'normal', 'huge'),
  ...functionCases('pow', [i(0), c(-2)], 'normal'),
  ...functionCases('pow', [i(0), c(7)], 'normal'),
  ...functionCases('pow', [i(0), c(0.5)], 'positive'),
  ...functionCases('pow', [i(0), c(0)], 'normal'),
  ...functionCases('pow', [i(0), c(1.7)], 'positive', 'ties'),
  ...functionCases('pow', [c(2), i(0)], 'normal'),
  ...functionCases('pow', [c(-2), i(0)], 'ties'),
  ...functionCases('pow', [c(0), i(0)], 'ties'),
  ...functionCases('pow', xy, 'positive', 'ties'),
  ...functionCases('minimum', xy, 'normal', 'ties'),
  ...functionCases('maximum', xy, 'ties', 'normal'),
  ...functionCases('clamp', [i(0), c(-0.75), c(1.1)], 'normal', 'huge'),
  ...functionCases('clampMin', [i(0), c(-0.75)], 'normal', 'huge'),
  ...functionCases('clampMax', [i(0), c(0.75)], 'normal', 'huge'),
  ...functionCases('divOrZero', xy, 'normal', 'ties'),
  ...functionCases('where', [i(0), i(1), i(2)], 'normal', 'ties'),
  ...(['eq', 'ne', 'lt', 'le', 'gt', 'ge'] as const).flatMap((fn) => functionCases(fn, xy, 'ties')),
  ...functionCases('leakyRelu', [i(0), c(0.01)], 'normal', 'huge'),
  ...(['sigmoid', 'tanh', 'erf', 'gelu', 'geluTanh', 'silu'] as const).flatMap((fn) =>
    functionCases(fn, x, 'normal', 'huge'),
  ),
  ...(['geluGrad', 'geluTanhGrad', 'siluGrad'] as const).flatMap((fn) =>
    functionCases(fn, xy, 'ties', 'huge'),
  ),
  ...functionCases('softplus', [i(0), c(1), c(20)], 'normal', 'huge'),
  ...functionCases('softplus', [i(0), c(2), c(1)], 'normal'),
  ...(['squaredError', 'absoluteError', 'bceLogits'] as const).flatMap((fn) =>
    functionCases(fn, xy, 'normal', 'huge'),
  ),
  ...functionCases('huber', [i(0), i(1), c(0.8)], 'normal', 'huge'),
  ...functionCases('bceLogitsWeighted', [i(0), i(1), i(2)], 'ties', 'huge'),
  ...functionCases('bceLogitsWeighted', [i(0), i(1), c(2.5)], 'normal'),
  ...functionCases('klDiv', xy, 'positive', 'ties'),
  ...functionCases('klDivLog', xy, 'normal'),
  {
    name: 'bce of a sigmoid',
    inputs: [tensorType([40]), tensorType([40])],
    attrs: { steps: [step('sigmoid', i(0)), step('bce', s(0), i(1))] },
  },
]
