import { invariant } from '../../util/errors.ts'
import { countElements, sameShape, tensorType } from '../../util/shape.ts'
import { canBeWide, lowerChain } from '../chain-kernel.ts'
import { roundHalf } from '../half.ts'
import { defineOp, type GradientContext, type Op, type OpCall, type Value } from '../op.ts'
import {
  applySteps,
  broadcastOffset,
  chainShape,
  type ScalarFunctionName,
  type Step,
} from '../steps.ts'
import { sumTo } from '../sum/sum.ts'
import { cases } from './cases.ts'
import { activationRules } from './rules/activations.ts'
import { arithmeticRules, comparisonRules } from './rules/arithmetic.ts'
import { lossRules } from './rules/losses.ts'
import { type MapAttrs, type Operand, type Rule, singleStep } from './rules/rule.ts'

export type { MapAttrs }
export { singleStep }

const lower = ({ inputs, outputs, attrs }: OpCall<MapAttrs>, isWide: boolean) =>
  lowerChain(
    `map ${attrs.steps.map(({ fn }) => fn).join('+')}`,
    attrs.steps,
    inputs,
    outputs[0].shape,
    isWide,
    attrs.dtype,
  )

/** For each scalar function: how to make the gradient by each argument. */
const rules: Record<ScalarFunctionName, Rule> = {
  ...arithmeticRules,
  ...comparisonRules,
  ...activationRules,
  ...lossRules,
}

/** Emits `steps` over operands; those that are numbers become constants of the steps. */
function emitChain(
  context: GradientContext<MapAttrs>,
  steps: readonly Step[],
  operands: readonly Operand[],
  dtype: MapAttrs['dtype'],
): Value {
  const values: Value[] = []
  const places = operands.map((operand) =>
    typeof operand === 'number' ? { constant: operand } : { input: values.push(operand) - 1 },
  )
  const placed = steps.map(({ fn, args }) => ({
    fn,
    args: args.map((argument) => ('input' in argument ? places[argument.input] : argument)),
  }))
  return context.emit<MapAttrs>(map, values, { steps: placed, ...(dtype && { dtype }) })[0]
}

/** The value stored as `dtype`. */
export const converted = <A>(
  context: GradientContext<A>,
  value: Value,
  dtype: 'f16' | 'f32',
): Value =>
  value.type.dtype === dtype
    ? value
    : context.emit<MapAttrs>(map, [value], { steps: [], ...(dtype === 'f16' && { dtype }) })[0]

/** The gradient by output 0 in the form that its own dtype asks for: the gradient of an f16 tensor is one. */
export function gradientOfOutput<A>(context: GradientContext<A>): Value | undefined {
  const [given] = context.outputGradients
  return given && context.outputs[0].type.dtype === 'f16' ? converted(context, given, 'f16') : given
}

function gradient(context: GradientContext<MapAttrs>): (Value | undefined)[] {
  const { inputs, outputs, outputGradients, attrs } = context
  const [given] = outputGradients
  if (!given) return inputs.map(() => undefined)
  if (attrs.steps.length === 0) return [sumTo(context, given, inputs[0].type.shape)]
  // What only converts (a parameter) passed gradients on as they are.
  const dy = gradientOfOutput(context)!
  invariant(
    attrs.steps.length === 1,
    () => `map: gradients are taken before chains are joined, got ${attrs.steps.length} steps`,
  )
  const [{ fn, args }] = attrs.steps
  const argumentInputs = args.map((argument) => ('input' in argument ? argument.input : -1))
  const chain = (steps: readonly Step[], ...operands: Operand[]) =>
    emitChain(context, steps, operands, attrs.dtype)
  const operands = args.map((argument): Operand => {
    invariant(!('step' in argument), () => 'map: the first step of a chain reads no other')
    return 'input' in argument ? inputs[argument.input] : argument.constant
  })
  const parts = rules[fn]({ dy, args: operands, y: outputs[0], chain })
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

/**
 * y = a chain of scalar functions over inputs that broadcast by NumPy's rules.
 *
 * shape: f32, or f16 by attrs; integer inputs are read as f32, exact to 2^24.
 */
export const map: Op<MapAttrs> = defineOp<MapAttrs>({
  name: 'map',
  takesHalf: true,
  infer(inputs, { steps, dtype }) {
    invariant(inputs.length > 0, () => 'map: a chain needs an input')
    const where = steps.map(({ fn }) => fn).join('+') || 'map'
    return [
      tensorType(
        chainShape(
          where,
          inputs.map(({ shape }) => shape),
        ),
        dtype,
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
  flops: ({ outputs, attrs }) => attrs.steps.length * countElements(outputs[0].shape),
  reference(inputs, { inputs: types, outputs: [{ shape }], attrs }) {
    const y = new Float64Array(countElements(shape))
    const isWhole = types.map((type) => sameShape(type.shape, shape))
    const operands: number[] = []
    for (let flat = 0; flat < y.length; flat++) {
      for (let n = 0; n < inputs.length; n++) {
        const at = isWhole[n] ? flat : broadcastOffset(shape, types[n].shape, flat)
        operands[n] = inputs[n][at]
      }
      y[flat] = applySteps(attrs.steps, operands)
    }
    return [attrs.dtype === 'f16' ? y.map(roundHalf) : y]
  },
  tolerance: {
    absolute: 1e-6,
    relative: 1e-6,
    because:
      'a few roundings of 2^-24 each; division may err by 2.5 ULP, exp by 3 + 2 |x|; cancellation after a rounding',
  },
  cases,
  preferred: ({ inputs, outputs }) =>
    canBeWide(
      inputs.map(({ shape }) => shape),
      outputs[0].shape,
    )
      ? 'wide'
      : 'naive',
})
