import { ShapeError, TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { type DType, formatShape, type Shape } from '../../util/shape.ts'

/** What functions of tensors ask of their arguments, in one wording. */

/** What is asked of tensors here: their type. */
interface Typed {
  readonly dtype: DType
  readonly shape: Shape
}

/** The error for an argument of a wrong kind. */
export const notUnderstood = (name: string, expected: string, got: unknown): ShapeError =>
  new ShapeError(
    'shape.unsupported',
    `${name}: expected ${expected}, got ${quoted(got)}. Arguments are in PyTorch's order: (dim, keepDim).`,
  )

/** errors: `shape.unsupported` where there is nothing to take, or what cannot be ordered, naming the function that was called. */
export function mustHaveElements(
  name: string,
  { dtype, shape, count }: Typed & { readonly count: number },
): void {
  if (count > 0 && dtype !== 'u32') return
  throw new ShapeError(
    'shape.unsupported',
    `${name}: expected an f32 or i32 tensor with at least one element, got ${dtype}${formatShape(shape)}. Convert u32 with float(), and skip empty tensors.`,
  )
}

/** errors: `shape.unsupported` for integers, naming the function that was called. */
export function mustBeFloat(name: string, ...tensors: Typed[]): void {
  const wrong = tensors.find(({ dtype }) => dtype !== 'f32' && dtype !== 'f16')
  if (!wrong) return
  const { dtype, shape } = wrong
  throw new ShapeError(
    'shape.unsupported',
    `${name}: expected a float tensor, got ${dtype}${formatShape(shape)}. Convert it with float().`,
  )
}

/** errors: `shape.unsupported` unless it is true or false. */
export function flag(name: string, value: boolean): boolean {
  if (typeof value !== 'boolean') throw notUnderstood(name, 'true or false', value)
  return value
}

/** errors: `graph.misuse`, naming the op and its input, for what is no tensor, which `kind` is the class of. */
export function mustBeTensors(
  op: string,
  inputs: readonly unknown[],
  kind: abstract new (...args: never[]) => unknown,
): void {
  const i = inputs.findIndex((input) => !(input instanceof kind))
  if (i < 0) return
  throw new TabringError(
    'graph.misuse',
    `${op}: input ${i} must be a Tensor, got ${quoted(inputs[i])}. Inside compile() pass a tensor; arrays are inputs of a run: step = await compile(({ x }) => ({ y: model.forward(x) }), { x: tensorType([1, 4]) }), then step.run({ x: array }).`,
  )
}
