import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape } from '../../util/shape.ts'
import { checkWindow } from '../conv2d/geometry.ts'
import { ceilDiv } from '../shader.ts'

/** Windows that slide, as in torch.nn.AvgPool2d. */
export interface SlidingWindows {
  readonly kernel: readonly [number, number]
  readonly stride: readonly [number, number]
  readonly padding: readonly [number, number]
  /** True if a last window that hangs over the padded image counts too. */
  readonly ceilMode: boolean
  /** True if padding counts in the mean's divisor. */
  readonly countIncludePad: boolean
}

/** As many windows as there are outputs, which share the image evenly, as in torch.nn.AdaptiveAvgPool2d. */
export interface AdaptiveWindows {
  readonly outputSize: readonly [number, number]
}

export type AvgPoolAttrs = SlidingWindows | AdaptiveWindows

export const isAdaptive = (attrs: AvgPoolAttrs): attrs is AdaptiveWindows => 'outputSize' in attrs

/** One axis of a pooling: which pixels a window holds. */
export interface Axis {
  /** Pixels and windows. */
  readonly size: number
  readonly count: number
  /** First pixel, the pixel after the last, and the divisor's factor, of window `o`; clipped to the image. */
  range(o: number): { start: number; end: number; weight: number }
  /** The same as WGSL on u32: functions `start_NAME(o)`, `end_NAME(o)`, `weight_NAME(o)`, and the windows `first_NAME(i)` to `last_NAME(i)` that hold pixel i. */
  wgsl(name: string): string
}

function adaptiveAxis(size: number, count: number): Axis {
  return {
    size,
    count,
    range(o) {
      const start = Math.floor((o * size) / count)
      const end = ceilDiv((o + 1) * size, count)
      return { start, end, weight: end - start }
    },
    wgsl: (name) => `
fn start_${name}(o: u32) -> u32 { return o * ${size}u / ${count}u; }
fn end_${name}(o: u32) -> u32 { return ((o + 1u) * ${size}u + ${count - 1}u) / ${count}u; }
fn weight_${name}(o: u32) -> u32 { return end_${name}(o) - start_${name}(o); }
fn first_${name}(i: u32) -> u32 { return i * ${count}u / ${size}u; }
fn last_${name}(i: u32) -> u32 { return ((i + 1u) * ${count}u + ${size - 1}u) / ${size}u - 1u; }`,
  }
}

function slidingAxis(size: number, attrs: SlidingWindows, axis: 0 | 1): Axis {
  const [kernel, stride, padding] = [attrs.kernel[axis], attrs.stride[axis], attrs.padding[axis]]
  const free = size + 2 * padding - kernel
  let count = (attrs.ceilMode ? ceilDiv(free, stride) : Math.floor(free / stride)) + 1
  // The last window must begin inside the image or the padding before it.
  if (attrs.ceilMode && (count - 1) * stride >= size + padding) count--
  const { countIncludePad } = attrs
  return {
    size,
    count,
    range(o) {
      const begin = o * stride - padding
      const start = Math.max(begin, 0)
      const end = Math.min(begin + kernel, size)
      const padded = Math.min(begin + kernel, size + padding) - begin
      return { start, end, weight: countIncludePad ? padded : end - start }
    },
    wgsl: (name) => `
fn start_${name}(o: u32) -> u32 { return max(o * ${stride}u, ${padding}u) - ${padding}u; }
fn end_${name}(o: u32) -> u32 { return min(o * ${stride}u + ${kernel}u - ${padding}u, ${size}u); }
fn weight_${name}(o: u32) -> u32 {
  return ${countIncludePad ? `min(o * ${stride}u + ${kernel}u, ${size + 2 * padding}u) - o * ${stride}u` : `end_${name}(o) - start_${name}(o)`};
}
fn first_${name}(i: u32) -> u32 { return (max(i + ${padding + stride}u, ${kernel}u) - ${kernel}u) / ${stride}u; }
fn last_${name}(i: u32) -> u32 { return min((i + ${padding}u) / ${stride}u, ${count - 1}u); }`,
  }
}

/** The rows and columns of a pooling. errors: `shape.unsupported` for windows that cannot be. */
export function poolAxes(op: string, x: Shape, attrs: AvgPoolAttrs): [rows: Axis, columns: Axis] {
  const [, , H, W] = x
  if (isAdaptive(attrs)) {
    const { outputSize } = attrs
    if (outputSize.length !== 2 || !outputSize.every((n) => Number.isInteger(n) && n >= 1)) {
      throw new ShapeError(
        'shape.unsupported',
        `${op}: the output size must be two integers of at least 1, got ${formatShape(outputSize)}. Correct it.`,
      )
    }
    return [adaptiveAxis(H, outputSize[0]), adaptiveAxis(W, outputSize[1])]
  }
  const { kernel, stride, padding } = attrs
  checkWindow(op, kernel, stride, padding)
  const axes: [Axis, Axis] = [slidingAxis(H, attrs, 0), slidingAxis(W, attrs, 1)]
  if (axes.some(({ count }) => count < 1) || padding.some((p, axis) => p * 2 > kernel[axis])) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: the window must fit into the padded image, and padding must be at most half the kernel, got x${formatShape(x)}, kernel ${formatShape(kernel)}, padding ${formatShape(padding)}. Use a smaller window.`,
    )
  }
  return axes
}
