import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type HostDType, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { type Case, defineOp, type HostArray, type Op } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { broadcastIndex, broadcastOffset, chainShape, collapseBroadcast } from '../steps.ts'
import { coordinatesOf } from '../strided.ts'
import {
  type IntegerFunction,
  type IntegerFunctionName,
  i32Literal,
  integerFunctions,
} from './functions.ts'

/** Which input, or which number, each argument is. */
export type IntegerArgument = { readonly input: number } | { readonly constant: number }

export interface IntegerMapAttrs {
  readonly fn: IntegerFunctionName
  readonly args: readonly IntegerArgument[]
}

const functionOf = ({ fn }: IntegerMapAttrs): IntegerFunction => integerFunctions[fn]

/** Returns whether an input is `where`'s condition, which may be of any type. */
const isCondition = ({ fn, args }: IntegerMapAttrs, input: number): boolean => {
  const [first] = args
  return fn === 'where' && 'input' in first && first.input === input
}

const caseOf = (
  name: string,
  fn: IntegerFunctionName,
  shapes: readonly (readonly number[])[],
  args: readonly IntegerArgument[] = shapes.map((_, input) => ({ input })),
  others: Partial<Case<IntegerMapAttrs>> = {},
): Case<IntegerMapAttrs> => ({
  name,
  inputs: shapes.map((shape) => tensorType(shape, 'i32')),
  attrs: { fn, args },
  integerBelow: Object.fromEntries(shapes.map((_, n) => [n, 2 ** 31])),
  ...others,
})

const few = { integerBelow: { 0: 3, 1: 3, 2: 3 } }

/**
 * y = a function of i32 tensors that broadcast by NumPy's rules, in i32: every digit, wrapping around at the ends of the range.
 *
 * shape: i32, and f32 ones and zeros of comparisons. The condition of `where` may be of any type.
 * Nothing flows back through integers. cost: one dispatch each; rewrites leave it alone.
 */
export const integerMap: Op<IntegerMapAttrs> = defineOp<IntegerMapAttrs>({
  name: 'integerMap',
  infer(inputs, attrs) {
    const shapes = inputs.map(({ shape }) => shape)
    const wrong = inputs.find(({ dtype }, n) => dtype !== 'i32' && !isCondition(attrs, n))
    if (wrong) {
      throw new ShapeError(
        'shape.unsupported',
        `${attrs.fn}: expected i32 tensors, got ${wrong.dtype}${formatShape(wrong.shape)}. Convert it with cast(x, 'i32').`,
      )
    }
    const shape = chainShape(attrs.fn, shapes)
    return [tensorType(shape, functionOf(attrs).isComparison ? 'f32' : 'i32')]
  },
  variants: oneVariant(({ inputs, outputs: [y], attrs }) => {
    const { output, operands } = collapseBroadcast(
      y.shape,
      inputs.map(({ shape }) => shape),
    )
    const coordinates = coordinatesOf(output, 'i')
    const loads = inputs.map(({ dtype }, n) => {
      const element = `in${n}[${broadcastIndex(output, operands[n], coordinates)}]`
      // A truth of another type, as an integer.
      const isOther = dtype !== 'i32'
      return `let v${n} = ${isOther ? `select(0i, 1i, ${element} != ${dtype === 'u32' ? '0u' : '0.0'})` : element};`
    })
    const args = attrs.args.map((argument) =>
      'input' in argument ? `v${argument.input}` : i32Literal(argument.constant),
    )
    return eachElement({
      label: `integers ${attrs.fn}`,
      count: countElements(y.shape),
      bindings: [
        ...inputs.map(({ dtype }, n) => reads(`in${n}`, { in: n }, dtype as HostDType)),
        writes('y', { out: 0 }, y.dtype as HostDType),
      ],
      main: [...loads, `y[i] = ${functionOf(attrs).wgsl(...args)};`],
    })
  }),
  reference(inputs, { inputs: types, outputs: [y], attrs }) {
    const count = countElements(y.shape)
    const result: HostArray = y.dtype === 'i32' ? new Int32Array(count) : new Float64Array(count)
    const { reference } = functionOf(attrs)
    for (let flat = 0; flat < count; flat++) {
      result[flat] = reference(
        ...attrs.args.map((argument) =>
          'constant' in argument
            ? argument.constant
            : inputs[argument.input][broadcastOffset(y.shape, types[argument.input].shape, flat)],
        ),
      )
    }
    return [result]
  },
  tolerance: { absolute: 0, relative: 0, because: 'integers' },
  cases: [
    caseOf('add 5', 'add', [[5], [5]]),
    caseOf('add 3x37 + 37', 'add', [[3, 37], [37]]),
    caseOf('sub 3x1 - 1x5', 'sub', [
      [3, 1],
      [1, 5],
    ]),
    caseOf('mul 4x3x8 * 3x1, wrapping around', 'mul', [
      [4, 3, 8],
      [3, 1],
    ]),
    caseOf('a number less x', 'sub', [[67]], [{ constant: -0x8000_0000 }, { input: 0 }]),
    caseOf('neg of one', 'neg', [[1]]),
    caseOf('square', 'square', [[66]]),
    caseOf('pow 3', 'pow', [[66]], [{ input: 0 }, { constant: 3 }]),
    caseOf('pow 0', 'pow', [[3]], [{ input: 0 }, { constant: 0 }]),
    caseOf('abs of x', 'abs', [[9]]),
    caseOf('sign', 'sign', [[9]], undefined, few),
    caseOf('floor', 'floor', [[9]]),
    caseOf('relu', 'relu', [[9]]),
    caseOf('minimum 9x7, 7', 'minimum', [[9, 7], [7]]),
    caseOf('maximum of a scalar', 'maximum', [[65], []]),
    caseOf('clamp', 'clamp', [[67]], [{ input: 0 }, { constant: 2 ** 29 }, { constant: 2 ** 30 }]),
    caseOf('clampMin', 'clampMin', [[67]], [{ input: 0 }, { constant: 2 ** 30 }]),
    caseOf('clampMax', 'clampMax', [[67]], [{ input: 0 }, { constant: 2 ** 30 }]),
    caseOf('where', 'where', [[4, 9], [9], [4, 1]], undefined, {
      integerBelow: { 0: 2, 1: 2 ** 31, 2: 2 ** 31 },
    }),
    {
      ...caseOf(
        'where by f32, or a number',
        'where',
        [[66], [66]],
        [{ input: 0 }, { input: 1 }, { constant: -1 }],
      ),
      inputs: [tensorType([66]), tensorType([66], 'i32')],
      fill: 'ties',
    },
    ...(['eq', 'ne', 'lt', 'le', 'gt', 'ge'] as const).map((fn) =>
      caseOf(fn, fn, [[8, 9], [9]], undefined, few),
    ),
    caseOf('nothing', 'add', [[0, 3], [3]]),
  ],
})
