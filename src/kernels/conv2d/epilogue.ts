import type { Shape, TensorType } from '../../util/shape.ts'
import type { ShaderBinding } from '../shader.ts'
import { floatAt, readsFloats } from '../shader.ts'
import { applySteps, broadcastIndex, broadcastOffset, type Step, stepsToWgsl } from '../steps.ts'

/** A chain of scalar functions at the store of a 4-dimensional output. */
export interface Epilogue {
  /** Storage variables `e1`, `e2`, ... of the chain's operands. */
  readonly bindings: readonly ShaderBinding[]
  /** The WGSL function `finish(sum: f32, n: u32, c: u32, y: u32, x: u32) -> f32`. */
  readonly wgsl: string
  /** Expression of operand `index` (from 0) at these coordinates. */
  operandAt(index: number, n: string, c: string, y: string, x: string): string
  /** Returns whether operand `index` takes different values inside one plane. */
  variesInPlane(index: number): boolean
  /** WGSL lines and result name of the chain, with `sum` the accumulator and `operands` expressions. */
  inline(
    sum: string,
    operands: readonly string[],
    prefix: string,
  ): { lines: string[]; result: string }
}

/** Returns the epilogue whose operands are the call's inputs from number `first`. */
export function epilogueOf(
  steps: readonly Step[],
  inputs: readonly TensorType[],
  first: number,
  output: TensorType,
): Epilogue {
  const operands = inputs.slice(first)
  const operandAt: Epilogue['operandAt'] = (index, ...coordinates) =>
    floatAt(
      `e${index + 1}`,
      operands[index],
      broadcastIndex(output.shape, operands[index].shape, coordinates),
    )
  const inline: Epilogue['inline'] = (sum, values, prefix) =>
    stepsToWgsl(steps, [sum, ...values], prefix)
  const { lines, result } = inline(
    'sum',
    operands.map((_, index) => operandAt(index, 'n', 'c', 'y', 'x')),
    's',
  )
  return {
    bindings: operands.map((type, index) =>
      readsFloats(`e${index + 1}`, { in: first + index }, type),
    ),
    wgsl: [
      'fn finish(sum: f32, n: u32, c: u32, y: u32, x: u32) -> f32 {',
      ...lines.map((line) => `  ${line}`),
      `  return ${result};`,
      '}',
    ].join('\n'),
    operandAt,
    variesInPlane: (index) => operands[index].shape.slice(-2).some((size) => size !== 1),
    inline,
  }
}

/** The chain on plain numbers: every element of `values` (the accumulators, changed in place) goes through it. */
export function applyEpilogue(
  steps: readonly Step[],
  values: Float64Array,
  output: Shape,
  operands: readonly ArrayLike<number>[],
  types: readonly TensorType[],
): Float64Array {
  for (let flat = 0; flat < values.length; flat++) {
    const others = operands.map(
      (operand, k) => operand[broadcastOffset(output, types[k].shape, flat)],
    )
    values[flat] = applySteps(steps, [values[flat], ...others])
  }
  return values
}
