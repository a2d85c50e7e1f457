import { invariant, ShapeError } from '../../util/errors.ts'
import { countElements, tensorType } from '../../util/shape.ts'
import { defineOp, type GradientContext, type Op, type OpCall, type Value } from '../op.ts'
import {
  applySteps,
  broadcastOffset,
  chainShape,
  type ScalarFunctionName,
  type Step,
} from '../steps.ts'
import { sumTo } from '../sum/sum.ts'
import { canBeWide, lowerChain } from './chain-kernel.ts'

/** `steps` over the inputs, which broadcast to one shape; no steps: the first input. */
export interface MapAttrs {
  readonly steps: readonly Step[]
}

/** A chain of one step that applies `fn` to inputs 0, 1, ... in order. */
export const singleStep = (fn: ScalarFunctionName, arity: number): Step[] => [
  { fn, args: Array.from({ length: arity }, (_, input) => ({ input })) },
]

const lower = ({ inputs, outputs, attrs }: OpCall<MapAttrs>, isWide: boolean) =>
  lowerChain(
    `map ${attrs.steps.map(({ fn }) => fn).join('+')}`,
    attrs.steps,
    inputs.map(({ shape }) => shape),
    outputs[0].shape,
    isWide,
  )

type Rule = (g: {
  /** The gradient by the result. */
  dy: Value
  /** The arguments and the result of the forward step. */
  args: readonly Value[]
  y: Value
  /** A chain over values, emitted at once. */
  chain(steps: readonly Step[], ...inputs: Value[]): Value
}) => ((() => Value) | undefined)[]

const i = (input: number) => ({ input })
const s = (step: number) => ({ step })

/** For each scalar function: how to make the gradient by each argument (before broadcasting is undone). */
const rules: Record<ScalarFunctionName, Rule> = {
  add: ({ dy }) => [() => dy, () => dy],
  sub: ({ dy, chain }) => [() => dy, () => chain(singleStep('neg', 1), dy)],
  mul: ({ dy, args: [a, b], chain }) => [
    () => chain(singleStep('mul', 2), dy, b),
    () => chain(singleStep('mul', 2), dy, a),
  ],
  div: ({ dy, args: [, b], y, chain }) => [
    () => chain(singleStep('div', 2), dy, b),
    // d(a/b)/db = -y/b
    () =>
      chain(
        [
          { fn: 'mul', args: [i(0), i(1)] },
          { fn: 'div', args: [s(0), i(2)] },
          { fn: 'neg', args: [s(1)] },
        ],
        dy,
        y,
        b,
      ),
  ],
  neg: ({ dy, chain }) => [() => chain(singleStep('neg', 1), dy)],
  relu: ({ dy, y, chain }) => [() => chain(singleStep('reluGrad', 2), dy, y)],
  reluGrad: ({ dy, args: [, y], chain }) => [
    () => chain(singleStep('reluGrad', 2), dy, y),
    undefined,
  ],
}

function gradient(context: GradientContext<MapAttrs>): (Value | undefined)[] {
  const { inputs, outputs, outputGradients, attrs } = context
  const [dy] = outputGradients
  if (!dy) return inputs.map(() => undefined)
  if (attrs.steps.length === 0) return [sumTo(context, dy, inputs[0].type.shape)]
  invariant(
    attrs.steps.length === 1,
    () => `map: gradients are taken before chains are joined, got ${attrs.steps.length} steps`,
  )
  const [{ fn, args }] = attrs.steps
  const argumentInputs = args.map((argument) => ('input' in argument ? argument.input : -1))
  const chain = (steps: readonly Step[], ...values: Value[]) =>
    context.emit<MapAttrs>(map, values, { steps })[0]
  const parts = rules[fn]({ dy, args: argumentInputs.map((n) => inputs[n]), y: outputs[0], chain })
  return inputs.map((input, n) => {
    if (!context.needs(n)) return undefined
    return parts
      .filter((part, position) => part && argumentInputs[position] === n)
      .map((part) => sumTo(context, part!(), input.type.shape))
      .reduce<Value | undefined>(
        (sum, part) => (sum ? chain(singleStep('add', 2), sum, part) : part),
        undefined,
      )
  })
}

/** y = a chain of scalar functions over inputs that broadcast by NumPy's rules. */
export const map: Op<MapAttrs> = defineOp<MapAttrs>({
  name: 'map',
  infer(inputs, { steps }) {
    invariant(inputs.length > 0, () => 'map: a chain needs an input')
    const other = inputs.find(({ dtype }) => dtype !== 'f32')
    if (other) {
      throw new ShapeError(
        'shape.unsupported',
        `map: inputs must be f32, got ${other.dtype}. Convert it first.`,
      )
    }
    const where = steps.map(({ fn }) => fn).join('+') || 'map'
    return [
      tensorType(
        chainShape(
          where,
          inputs.map(({ shape }) => shape),
        ),
      ),
    ]
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, false) },
    {
      name: 'wide',
      when: ({ inputs, outputs }) =>
        canBeWide(
          inputs.map(({ shape }) => shape),
          outputs[0].shape,
        ),
      lower: (call) => lower(call, true),
    },
  ],
  gradient,
  reference(inputs, { inputs: types, outputs: [{ shape }], attrs }) {
    const y = new Float64Array(countElements(shape))
    for (let flat = 0; flat < y.length; flat++) {
      y[flat] = applySteps(
        attrs.steps,
        inputs.map((values, n) => values[broadcastOffset(shape, types[n].shape, flat)]),
      )
    }
    return [y]
  },
  tolerance: {
    absolute: 1e-6,
    relative: 1e-6,
    because:
      'a few roundings of 2^-24 each; division may err by 2.5 ULP; cancellation after a rounding',
  },
  cases: [
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
      attrs: { steps: [{ fn: 'mul', args: [i(0), i(0)] }] },
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
      name: 'chain relu(x + b) * s',
      inputs: [tensorType([10, 20]), tensorType([20]), tensorType([])],
      attrs: {
        steps: [
          { fn: 'add', args: [i(0), i(1)] },
          { fn: 'relu', args: [s(0)] },
          { fn: 'mul', args: [s(1), i(2)] },
        ],
      },
    },
    {
      name: 'more than 65,535 workgroups',
      inputs: [tensorType([65_536 * 64 + 3])],
      attrs: { steps: singleStep('neg', 1) },
    },
  ],
  preferred: ({ inputs, outputs }) =>
    canBeWide(
      inputs.map(({ shape }) => shape),
      outputs[0].shape,
    )
      ? 'wide'
      : 'naive',
})
