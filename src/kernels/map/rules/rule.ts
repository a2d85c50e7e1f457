import type { Value } from '../../op.ts'
import type { ScalarFunctionName, Step, StepArgument } from '../../steps.ts'

/** `steps` over the inputs, which broadcast to one shape; no steps: the first input. */
export interface MapAttrs {
  readonly steps: readonly Step[]
  /** Type in which the result is stored; default f32. */
  readonly dtype?: 'f16'
}

/** An argument of a forward step: a tensor, or a number that is part of the step. */
export type Operand = Value | number

/** What a gradient rule sees of one elementwise step. */
export interface RuleContext {
  /** The gradient by the result. */
  readonly dy: Value
  /** The arguments and the result of the forward step. */
  readonly args: readonly Operand[]
  readonly y: Value
  /** A chain over operands, emitted at once. */
  chain(steps: readonly Step[], ...operands: Operand[]): Value
}

/** How to make the gradient by each argument, before broadcasting is undone; undefined entries where there is none. */
export type Rule = (context: RuleContext) => readonly ((() => Value) | undefined)[]

// Arguments of the steps of a chain: its n-th operand, the n-th step's result, a number.
export const i = (input: number): StepArgument => ({ input })
export const s = (step: number): StepArgument => ({ step })
export const c = (constant: number): StepArgument => ({ constant })

export const step = (fn: ScalarFunctionName, ...args: StepArgument[]): Step => ({ fn, args })

/** A chain of one step that applies `fn` to inputs 0, 1, ... in order. */
export const singleStep = (fn: ScalarFunctionName, arity: number): Step[] => [
  step(fn, ...Array.from({ length: arity }, (_, input) => i(input))),
]

/** The step that makes 0 of input 0, also of NaN and infinity. */
export const nought = step('where', c(0), i(0), c(0))

/** The gradient of what is constant almost everywhere: zeros, as PyTorch has them, not the absence of a gradient. */
export const zero: Rule = ({ dy, chain }) => [() => chain([nought], dy)]

/** No gradient by any argument: the result of a comparison is a constant. */
export const none: Rule = () => []
