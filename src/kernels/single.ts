import { ShapeError } from '../util/errors.ts'
import { formatShape, type TensorType } from '../util/shape.ts'
import type { Dispatch } from './op.ts'
import { dispatch, type ShaderBinding } from './shader.ts'

// What kernels of one thread share.

/** A dispatch of one thread. */
export const single = (
  label: string,
  bindings: readonly ShaderBinding[],
  functions: string,
  lines: readonly string[],
): Dispatch =>
  dispatch({
    label,
    bindings,
    body: `${functions}\n@compute @workgroup_size(1)\nfn main() {\n${lines.map((line) => `  ${line}`).join('\n')}\n}`,
    groups: [1, 1, 1],
  })

/** errors: `shape.mismatch` unless every input is a flat f32 tensor of two elements or more. */
export function checkPairs(op: string, inputs: readonly TensorType[], max: number): void {
  const wrong = inputs.find(
    ({ shape, dtype }) => shape.length !== 1 || shape[0] < 2 || dtype !== 'f32',
  )
  if (wrong || inputs.length > max) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: expected at most ${max} flat inputs of 2 elements or more, got ${wrong ? formatShape(wrong.shape) : inputs.length}. Combine them in groups.`,
    )
  }
}
