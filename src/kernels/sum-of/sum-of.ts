import { invariant } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, tensorType } from '../../util/shape.ts'
import { c, i, s, singleStep, step } from '../map/rules/rule.ts'
import { type Case, caseOf, defineOp, type Lowering, type Op, type OpCall } from '../op.ts'
import { lowerReduction, reductionVariants } from '../reduce/passes.ts'
import { kept, over, type ReduceAttrs, reducedShape } from '../reduce/shapes.ts'
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

const error = singleStep('squaredError', 2)
const product = singleStep('mul', 2)
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
  ...reductionVariants(lower, inputShape),
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
    sumCase('mean of one element', [[1]], over(0), [], mean(1)),
    sumCase(
      'mean squared error of 9x37',
      [9, 37].map(() => [9, 37]),
      over(0, 1),
      error,
      mean(333),
    ),
    sumCase(
      'variance over axes 0, 2',
      [
        [5, 6, 70],
        [1, 6, 1],
      ],
      kept(0, 2),
      error,
      mean(349),
    ),
    sumCase(
      'norms of columns, one operand a row',
      [[300, 7], [7]],
      over(0),
      [step('mul', i(0), i(1)), step('square', s(0))],
      singleStep('sqrt', 1),
    ),
    sumCase('in chunks, times a scalar', [[2, 17_001], []], kept(1), product, mean(17_001)),
    sumCase('nothing over the other axis', [[0, 5], [5]], over(1), singleStep('add', 2), mean(5)),
    sumCase('nothing over the empty axis', [[0, 5]], over(0), singleStep('square', 1), []),
    sumCase('nothing, one operand broadcast', [[4, 0, 1], [2]], over(0, 1), product, []),
    { ...sumCase('huge', [[3, 129]], over(1), singleStep('abs', 1), mean(129)), fill: 'huge' },
  ],
})

function sumCase(
  name: string,
  inputs: readonly Shape[],
  reduced: ReduceAttrs,
  steps: readonly Step[],
  finalSteps: readonly Step[],
): Case<SumOfAttrs> {
  return caseOf(name, inputs, { ...reduced, steps, finalSteps })
}
