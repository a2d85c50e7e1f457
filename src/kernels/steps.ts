import { broadcastShapes, type Shape } from '../util/shape.ts'
import { activations } from './scalar/activations.ts'
import { arithmetic, comparisons } from './scalar/arithmetic.ts'
import { lossTerms } from './scalar/losses.ts'
import { constantWgsl } from './scalar/scalar-function.ts'

/**
 * Chains of scalar functions: the body of every elementwise kernel and of every epilogue.
 *
 * A chain is a list of steps in order. Each step applies one scalar function to inputs of the chain or to results of
 * earlier steps; the last step is the result. The same chain runs as its own kernel (map) or at the store of a matmul
 * or convolution, where chain input 0 is the accumulator.
 */
export type StepArgument =
  | { readonly input: number }
  | { readonly step: number }
  /** A number that never changes, written into the shader. */
  | { readonly constant: number }

export interface Step {
  readonly fn: ScalarFunctionName
  readonly args: readonly StepArgument[]
}

/** Every scalar function, by name. Adding one to its table makes it an elementwise op and an epilogue. */
export const scalarFunctions = {
  ...arithmetic,
  ...comparisons,
  ...activations,
  ...lossTerms,
}

export type ScalarFunctionName = keyof typeof scalarFunctions

/** WGSL `let` lines for a chain, and the name that holds its result. `inputs` are expressions of type f32. */
export function stepsToWgsl(
  steps: readonly Step[],
  inputs: readonly string[],
  prefix = 's',
): { lines: string[]; result: string } {
  const nameOf = (argument: StepArgument): string =>
    'input' in argument
      ? inputs[argument.input]
      : 'step' in argument
        ? `${prefix}${argument.step}`
        : constantWgsl(argument.constant, inputs[0])
  const lines = steps.flatMap(({ fn, args }, index) => {
    const text = scalarFunctions[fn].wgsl(...args.map(nameOf))
    const parts = typeof text === 'string' ? [text] : text
    const own = parts.map((part) => part.replaceAll('$', `${prefix}${index}_`))
    return [
      ...own.slice(0, -1).map((line) => `let ${line};`),
      `let ${prefix}${index} = ${own[own.length - 1]};`,
    ]
  })
  return { lines, result: steps.length === 0 ? inputs[0] : `${prefix}${steps.length - 1}` }
}

/** The chain on plain numbers. */
export function applySteps(steps: readonly Step[], inputs: readonly number[]): number {
  if (steps.length === 0) return inputs[0]
  const results: number[] = []
  const take = (argument: StepArgument): number =>
    'input' in argument
      ? inputs[argument.input]
      : 'step' in argument
        ? results[argument.step]
        : argument.constant
  for (const { fn, args } of steps) {
    const { reference } = scalarFunctions[fn]
    // Without a list of arguments where there are one or two: a third of the time.
    results.push(
      args.length === 1
        ? reference(take(args[0]))
        : args.length === 2
          ? reference(take(args[0]), take(args[1]))
          : reference(...args.map(take)),
    )
  }
  return results[results.length - 1]
}

/**
 * Joins two chains: `first`'s result becomes `second`'s input number `at`.
 *
 * Inputs of the joined chain: first's inputs, then second's inputs without number `at`.
 */
export function joinSteps(
  first: readonly Step[],
  firstInputCount: number,
  second: readonly Step[],
  at: number,
): Step[] {
  const shifted = second.map(({ fn, args }) => ({
    fn,
    args: args.map((argument): StepArgument => {
      if ('constant' in argument) return argument
      if ('step' in argument) return { step: argument.step + first.length }
      if (argument.input === at) {
        return first.length === 0 ? { input: 0 } : { step: first.length - 1 }
      }
      return { input: firstInputCount + argument.input - (argument.input > at ? 1 : 0) }
    }),
  }))
  return [...first, ...shifted]
}

/**
 * A WGSL expression for the flat index into an operand of shape `operand`, broadcast to `output`,
 * where `coordinates[axis]` are u32 expressions of the output's coordinates.
 */
export function broadcastIndex(
  output: Shape,
  operand: Shape,
  coordinates: readonly string[],
): string {
  const terms: string[] = []
  let stride = 1
  for (let axis = operand.length - 1; axis >= 0; axis--) {
    const outputAxis = axis + output.length - operand.length
    if (operand[axis] !== 1) {
      terms.unshift(
        stride === 1 ? coordinates[outputAxis] : `${coordinates[outputAxis]} * ${stride}u`,
      )
    }
    stride *= operand[axis]
  }
  return terms.length === 0 ? '0u' : terms.join(' + ')
}

/** Flat index into a broadcast operand for the output element `flat`, on plain numbers. */
export function broadcastOffset(output: Shape, operand: Shape, flat: number): number {
  let rest = flat
  let offset = 0
  let stride = 1
  for (let axis = output.length - 1; axis >= 0; axis--) {
    const coordinate = rest % output[axis]
    rest = Math.floor(rest / output[axis])
    const operandAxis = axis - (output.length - operand.length)
    if (operandAxis < 0) continue
    if (operand[operandAxis] !== 1) offset += coordinate * stride
    stride *= operand[operandAxis]
  }
  return offset
}

/** The common shape of all operands of a chain. */
export const chainShape = (where: string, shapes: readonly Shape[]): Shape =>
  shapes.reduce((shape, next) => broadcastShapes(where, shape, next))

/**
 * The same broadcast over as few axes as possible: axes of size 1 go, neighbours that every operand indexes as one axis merge.
 *
 * `[64, 28, 28] + [28, 28]` becomes `[64, 784] + [1, 784]`, so most kernels need no division at all.
 */
export function collapseBroadcast(
  output: Shape,
  operands: readonly Shape[],
): { output: number[]; operands: number[][] } {
  const collapsed: { size: number; isFull: boolean[] }[] = []
  output.forEach((size, axis) => {
    if (size === 1) return
    const isFull = operands.map((shape) => {
      const own = axis - (output.length - shape.length)
      return own >= 0 && shape[own] !== 1
    })
    const last = collapsed.at(-1)
    if (last?.isFull.every((full, i) => full === isFull[i])) last.size *= size
    else collapsed.push({ size, isFull })
  })
  return {
    output: collapsed.map(({ size }) => size),
    operands: operands.map((_, i) => collapsed.map(({ size, isFull }) => (isFull[i] ? size : 1))),
  }
}

/** WGSL of 4 neighbours as they are stored. */
export const wideValue = (values: readonly string[], isHalf: boolean): string =>
  isHalf
    ? `vec2<u32>(pack_half(${values[0]}, ${values[1]}), pack_half(${values[2]}, ${values[3]}))`
    : `vec4<f32>(${values.join(', ')})`
