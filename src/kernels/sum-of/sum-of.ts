import { invariant } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, tensorType } from '../../util/shape.ts'
import { c, i, s, singleStep, step } from '../map/rules/rule.ts'
import { defineOp, type Lowering, type Op, type OpCall } from '../op.ts'
import { canUseTree, lowerReduction, prefersTree } from '../reduce/passes.ts'
import { type ReduceAttrs, reducedShape } from '../reduce/shapes.ts'
import { applySteps, broadcastOffset, chainShape, type Step } from '../steps.ts'

/** A chain before a sum and a chain after it. */
export interface SumOfAttrs extends ReduceAttrs {
  /** Over the inputs, as in `map`. */
  readonly steps: readonly Step[]
  /** Over the sum alone, its input 0. */
  readonly finalSteps: readonly Step[]
}

const inputShape = ({ inputs }: OpCall<SumOfAttrs>): Shape =>
  chainShape(
    'sumOf',
    inputs.map(({ shape }) => shape),
  )

const lower = (call: OpCall<SumOfAttrs>, useTree: boolean): Lowering =>
  lowerReduction(
    {
      label: `sumOf ${call.attrs.steps.map(({ fn }) => fn).join('+')}`,
      shape: inputShape(call),
      axes: call.attrs.axes,
      combine: 'sum',
      sources: call.inputs.map(({ shape }, n) => ({ operand: { in: n }, shape })),
      steps: call.attrs.steps,
      finalSteps: call.attrs.finalSteps,
      out: { out: 0 },
    },
    useTree,
  )

const mean = (count: number): Step[] => [step('div', i(0), c(count))]

/**
 * y = a chain over a sum of a chain: means, norms, mean losses, in one pass over memory.
 *
 * Rewrites put it in the place of map, sum and map; it has no gradient, since gradients are taken before.
 */
export const sumOf: Op<SumOfAttrs> = defineOp<SumOfAttrs>({
  name: 'sumOf',
  infer(inputs, { axes, keepDims }) {
    invariant(
      inputs.every(({ dtype }) => dtype === 'f32'),
      () =>
        `sumOf: inputs must be f32, got ${inputs.map(({ dtype, shape }) => dtype + formatShape(shape))}`,
    )
    const shape = chainShape(
      'sumOf',
      inputs.map((input) => input.shape),
    )
    return [tensorType(reducedShape(shape, axes, keepDims))]
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, false) },
    {
      name: 'tree',
      when: (call) => canUseTree(inputShape(call), call.attrs.axes),
      lower: (call) => lower(call, true),
    },
  ],
  preferred: (call) => (prefersTree(inputShape(call), call.attrs.axes) ? 'tree' : 'naive'),
  reference(inputs, call) {
    const { steps, finalSteps, axes } = call.attrs
    const shape = inputShape(call)
    const kept = reducedShape(shape, axes, true)
    const y = new Float64Array(countElements(kept))
    for (let flat = 0; flat < countElements(shape); flat++) {
      y[broadcastOffset(shape, kept, flat)] += applySteps(
        steps,
        inputs.map((values, n) => values[broadcastOffset(shape, call.inputs[n].shape, flat)]),
      )
    }
    return [y.map((total) => applySteps(finalSteps, [total]))]
  },
  tolerance: {
    absolute: 2e-5,
    relative: 2e-6,
    because: 'up to a few thousand additions in f32; terms cancel, so the error is absolute',
  },
  cases: [
    {
      name: 'mean of one element',
      inputs: [tensorType([1])],
      attrs: { axes: [0], keepDims: false, steps: [], finalSteps: mean(1) },
    },
    {
      name: 'mean squared error of 9x37',
      inputs: [tensorType([9, 37]), tensorType([9, 37])],
      attrs: {
        axes: [0, 1],
        keepDims: false,
        steps: singleStep('squaredError', 2),
        finalSteps: mean(333),
      },
    },
    {
      name: 'variance of 5x6x70 over axes 0, 2',
      inputs: [tensorType([5, 6, 70]), tensorType([1, 6, 1])],
      attrs: {
        axes: [0, 2],
        keepDims: true,
        steps: singleStep('squaredError', 2),
        finalSteps: mean(349),
      },
    },
    {
      name: 'norms of columns, one operand a row',
      inputs: [tensorType([300, 7]), tensorType([7])],
      attrs: {
        axes: [0],
        keepDims: false,
        steps: [step('mul', i(0), i(1)), step('square', s(0))],
        finalSteps: singleStep('sqrt', 1),
      },
    },
    {
      name: 'in chunks, times a scalar',
      inputs: [tensorType([2, 17_001]), tensorType([])],
      attrs: {
        axes: [1],
        keepDims: true,
        steps: singleStep('mul', 2),
        finalSteps: mean(17_001),
      },
    },
    {
      name: 'nothing over the other axis',
      inputs: [tensorType([0, 5]), tensorType([5])],
      attrs: { axes: [1], keepDims: false, steps: singleStep('add', 2), finalSteps: mean(5) },
    },
    {
      name: 'nothing over the empty axis',
      inputs: [tensorType([0, 5])],
      attrs: { axes: [0], keepDims: false, steps: singleStep('square', 1), finalSteps: [] },
    },
    {
      name: 'nothing over an empty axis, one operand broadcast',
      inputs: [tensorType([4, 0, 1]), tensorType([2])],
      attrs: { axes: [0, 1], keepDims: false, steps: singleStep('mul', 2), finalSteps: [] },
    },
    {
      name: 'huge',
      inputs: [tensorType([3, 129])],
      attrs: { axes: [1], keepDims: false, steps: singleStep('abs', 1), finalSteps: mean(129) },
      fill: 'huge',
    },
  ],
})
