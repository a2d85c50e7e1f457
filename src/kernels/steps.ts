import { broadcastShapes, type Shape } from '../util/shape.ts'

/**
 * Chains of scalar functions: the body of every elementwise kernel and of every epilogue.
 *
 * A chain is a list of steps in order. Each step applies one scalar function to inputs of the chain or to results of
 * earlier steps; the last step is the result. The same chain runs as its own kernel (map) or at the store of a matmul
 * or convolution, where chain input 0 is the accumulator.
 */
export type StepArgument = { input: number } | { step: number }

export interface Step {
  readonly fn: ScalarFunctionName
  readonly args: readonly StepArgument[]
}

interface ScalarFunction {
  readonly arity: number
  /** WGSL expression on f32 operands, each a name. */
  wgsl(...args: string[]): string
  /** The same on numbers. */
  reference(...args: number[]): number
}

/** Every scalar function, by name. Adding one here makes it an elementwise op and an epilogue. */
export const scalarFunctions = {
  add: { arity: 2, wgsl: (a, b) => `(${a} + ${b})`, reference: (a, b) => a + b },
  sub: { arity: 2, wgsl: (a, b) => `(${a} - ${b})`, reference: (a, b) => a - b },
  mul: { arity: 2, wgsl: (a, b) => `(${a} * ${b})`, reference: (a, b) => a * b },
  div: { arity: 2, wgsl: (a, b) => `(${a} / ${b})`, reference: (a, b) => a / b },
  neg: { arity: 1, wgsl: (a) => `(-${a})`, reference: (a) => -a },
  relu: { arity: 1, wgsl: (a) => `max(${a}, 0.0)`, reference: (a) => Math.max(a, 0) },
  /** dx of relu from dy and the *output* y. */
  reluGrad: {
    arity: 2,
    wgsl: (dy, y) => `select(0.0, ${dy}, ${y} > 0.0)`,
    reference: (dy, y) => (y > 0 ? dy : 0),
  },
} as const satisfies Record<string, ScalarFunction>

export type ScalarFunctionName = keyof typeof scalarFunctions

/** WGSL `let` lines for a chain, and the name that holds its result. `inputs` are expressions of type f32. */
export function stepsToWgsl(
  steps: readonly Step[],
  inputs: readonly string[],
  prefix = 's',
): { lines: string[]; result: string } {
  const nameOf = (argument: StepArgument) =>
    'input' in argument ? inputs[argument.input] : `${prefix}${argument.step}`
  const lines = steps.map(({ fn, args }, index) => {
    const wgsl = scalarFunctions[fn].wgsl as (...names: string[]) => string
    return `let ${prefix}${index} = ${wgsl(...args.map(nameOf))};`
  })
  return { lines, result: steps.length === 0 ? inputs[0] : `${prefix}${steps.length - 1}` }
}

/** The chain on plain numbers. */
export function applySteps(steps: readonly Step[], inputs: readonly number[]): number {
  const results: number[] = []
  for (const { fn, args } of steps) {
    const reference = scalarFunctions[fn].reference as (...values: number[]) => number
    results.push(reference(...args.map((a) => ('input' in a ? inputs[a.input] : results[a.step]))))
  }
  return steps.length === 0 ? inputs[0] : results[results.length - 1]
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
