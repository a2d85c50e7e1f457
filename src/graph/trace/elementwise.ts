import { fromScalar } from '../../kernels/from-scalar/from-scalar.ts'
import {
  type IntegerFunctionName,
  integerFunctions,
  isI32,
  isIntegerExponent,
} from '../../kernels/integers/functions.ts'
import { type IntegerArgument, integerMap } from '../../kernels/integers/integer-map.ts'
import { map } from '../../kernels/map/map.ts'
import type { Op, ScalarSlot } from '../../kernels/op.ts'
import { lossTerms } from '../../kernels/scalar/losses.ts'
import type { ScalarFunctionName, StepArgument } from '../../kernels/steps.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { formatShape } from '../../util/shape.ts'
import { type Arguments, mustBeTensors } from './tensor-arguments.ts'
import { activeTrace } from './trace.ts'
import { GraphValue } from './value.ts'

/** Inputs of an elementwise function: an op's result, a number that never changes, or one that each run sets. */
export type ElementwiseArgument = GraphValue | number | ScalarSlot

/** Functions whose results need float32's range or digits even where their arguments are f16, as PyTorch's autocast has them. */
const inFloat: ReadonlySet<ScalarFunctionName> = new Set<ScalarFunctionName>([
  'exp',
  'log',
  'pow',
  'rsqrt',
  'softplus',
  ...(Object.keys(lossTerms) as ScalarFunctionName[]),
])

const isSlot = (operand: GraphValue | ScalarSlot): operand is ScalarSlot =>
  !(operand instanceof GraphValue) && typeof operand?.slot === 'number'

/**
 * Returns whether a function is computed on i32: where it is one of integers, its tensors are all i32 and its numbers whole.
 *
 * The condition of `where` may be anything; of its branches one must be a tensor.
 */
function staysInteger(fn: ScalarFunctionName, operands: readonly ElementwiseArgument[]): boolean {
  if (!Object.hasOwn(integerFunctions, fn)) return false
  if (fn === 'pow' && !isIntegerExponent(operands[1])) return false
  const values = fn === 'where' ? operands.slice(1) : operands
  return (
    values.some((value) => value instanceof GraphValue) &&
    values.every((value) =>
      typeof value === 'number'
        ? isI32(value)
        : value instanceof GraphValue && value.type.dtype === 'i32',
    )
  )
}

/** Adds an elementwise function to the function being compiled: what `elementwise` of tensors does, where the result's dtypes are documented. */
export function emitElementwise(
  fn: ScalarFunctionName,
  named: Arguments<ElementwiseArgument>,
): GraphValue {
  const operands = Object.values(named)
  const inputs: GraphValue[] = []
  const args = Object.entries(named).map(([name, operand]): StepArgument => {
    if (typeof operand !== 'number') {
      const input = isSlot(operand) ? scalarValue(operand) : operand
      return { input: inputs.push(input) - 1 }
    }
    if (Number.isFinite(operand) && !Number.isFinite(Math.fround(operand))) {
      throw new TabringError(
        'graph.misuse',
        `${fn}: ${name} must be within float32's range, got ${operand}. Use a smaller one, or Infinity.`,
      )
    }
    return { constant: operand }
  })
  if (inputs.length === 0) {
    throw new TabringError(
      'graph.misuse',
      `${fn}: ${Object.keys(named).join(' or ')} must be a Tensor, got only numbers. Compute it in JavaScript.`,
    )
  }
  mustBeOperands(fn, named)
  if (staysInteger(fn, operands)) {
    const places = args as readonly IntegerArgument[]
    const attrs = { fn: fn as IntegerFunctionName, args: places }
    return emitFollowed(fn, integerMap, inputs, attrs)
  }
  mustHaveArithmetic(fn, operands)
  const isHalf = inputs.every(({ type }) => type.dtype === 'f16') && !inFloat.has(fn)
  const attrs = { steps: [{ fn, args }], ...(isHalf && { dtype: 'f16' as const }) }
  return emitFollowed(fn, map, inputs, attrs)
}

/** errors: `graph.misuse`, naming the function and its argument, for what is no operand. */
function mustBeOperands(fn: ScalarFunctionName, named: Arguments<ElementwiseArgument>): void {
  const operands = Object.entries(named)
  const tensors = operands.filter(
    ([, operand]) =>
      typeof operand !== 'number' && (operand instanceof GraphValue || !isSlot(operand)),
  )
  const expected = operands.length > 1 ? 'a Tensor or a number' : 'a Tensor'
  mustBeTensors(fn, Object.fromEntries(tensors), GraphValue, expected)
}

/** errors: `shape.unsupported` for u32, whose words float32 would round; the condition of `where` may be anything. */
function mustHaveArithmetic(fn: string, operands: readonly ElementwiseArgument[]): void {
  const wrong = (fn === 'where' ? operands.slice(1) : operands).find(
    (operand) => operand instanceof GraphValue && operand.type.dtype === 'u32',
  )
  if (!(wrong instanceof GraphValue)) return
  throw new ShapeError(
    'shape.unsupported',
    `${fn}: expected f32, f16 or i32, got u32${formatShape(wrong.type.shape)}, which has no arithmetic. Convert it with cast(x, 'i32'), which keeps its bits, or with float().`,
  )
}

function scalarValue(slot: ScalarSlot): GraphValue {
  const trace = activeTrace(fromScalar.name)
  trace.scalars.requireOwn(slot)
  return trace.emit(fromScalar, [], { slot })[0]
}

function emitFollowed<A>(
  fn: string,
  op: Op<A>,
  inputs: readonly GraphValue[],
  attrs: A,
): GraphValue {
  const trace = activeTrace(fn)
  trace.divided.refuseOp(op as Op, inputs, attrs)
  return trace.emit(op, inputs, attrs)[0]
}
