import { calledAs } from '../../util/called-as.ts'
import { type DeviceSpec, type PlacedDevice, placedDevice } from '../../util/device.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkArgument } from '../../util/options.ts'
import { type DType, formatShape, resolveAxes, type Shape } from '../../util/shape.ts'

/** Checks of arguments that functions of tensors share, in one wording. */

/** The device that a function's argument means now. errors: those of `device`, and for a type of elements, naming the function. */
export function targetDevice(where: string, spec: DeviceSpec): PlacedDevice {
  checkArgument(
    where,
    'device',
    spec,
    typeof spec !== 'string' || !/^(b?float|f|int|i|u|half|double)\d*$/.test(spec),
    'a device such as "webgpu" (a type changes by half() and float())',
  )
  return calledAs(where, 'device', () => placedDevice(spec))
}

/** The part of a tensor that is checked here: its type. */
interface Typed {
  readonly dtype: DType
  readonly shape: Shape
}

/** The error for an argument of a wrong kind. */
export const notUnderstood = (
  where: string,
  name: string,
  expected: string,
  got: unknown,
): ShapeError =>
  new ShapeError(
    'shape.unsupported',
    `${where}: ${name} must be ${expected}, got ${quoted(got)}. Arguments are in PyTorch's order.`,
  )

/**
 * Axes that `dim` names, counted from 0; all of them by default, and for an empty list, as in PyTorch.
 *
 * errors: `shape.mismatch` for one out of range or given twice; `shape.unsupported` for anything but a dimension; both name `where`.
 */
export function axesOf(
  where: string,
  shape: Shape,
  dim: number | readonly number[] = [],
): number[] {
  const axes = typeof dim === 'number' ? [dim] : dim
  if (!Array.isArray(axes))
    throw notUnderstood(where, 'dim', 'a dimension or an array of them', dim)
  return axes.length === 0 ? shape.map((_, axis) => axis) : resolveAxes(where, 'dim', shape, axes)
}

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
export function flag(where: string, name: string, value: boolean): boolean {
  if (typeof value !== 'boolean') throw notUnderstood(where, name, 'true or false', value)
  return value
}

/** A function's arguments by the names of its signature, in its order: `{ x, weight }`. */
export type Arguments<T = unknown> = Readonly<Record<string, T>>

/** The items of a list that is one argument: `tensors[0]`, `tensors[1]`. */
export const itemsOf = <T>(name: string, list: readonly T[]): Arguments<T> =>
  Object.fromEntries(list.map((item, i) => [`${name}[${i}]`, item]))

/** errors: `graph.misuse`, naming the function and its argument, for what is no tensor, which `kind` is the class of. */
export function mustBeTensors(
  where: string,
  args: Arguments,
  kind: abstract new (...args: never[]) => unknown,
  expected = 'a Tensor',
): void {
  const wrong = Object.entries(args).find(([, value]) => !(value instanceof kind))
  if (!wrong) return
  throw new TabringError(
    'graph.misuse',
    `${where}: ${wrong[0]} must be ${expected}, got ${quoted(wrong[1])}. Inside compile() pass a tensor; arrays are inputs of a run: step = await compile(({ x }) => ({ y: model.forward(x) }), { x: tensorType([1, 4]) }), then step.run({ x: array }).`,
  )
}
