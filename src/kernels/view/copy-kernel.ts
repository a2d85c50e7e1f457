import { countElements, type Shape, stridesOf } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import type { Lowering } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { coordinatesOf, mergeAxes, type Strided } from '../strided.ts'
import type { Region } from './region.ts'

// Copies by index arithmetic. Elements are moved as 32-bit words, so one kernel serves every dtype and no bit changes.

/** Sum of coordinate * stride on top of `offset`; strides may be negative, the sum is not. */
function signedOffset(coordinates: readonly string[], strides: readonly number[], offset: number) {
  const terms = coordinates.flatMap((coordinate, axis) => {
    const stride = strides[axis]
    if (stride === 0) return []
    const by = Math.abs(stride) === 1 ? '' : ` * ${Math.abs(stride)}u`
    return [`${stride < 0 ? '-' : '+'} ${coordinate}${by}`]
  })
  return [`${offset}u`, ...terms].join(' ')
}

/** Returns whether a strided tensor can be copied 4 neighbours at a time. */
export function isWideCopy(from: Strided): boolean {
  const { sizes, strides } = mergeAxes(from.shape, [from.strides])
  const last = sizes.length - 1
  return (
    last >= 0 &&
    sizes[last] % 4 === 0 &&
    strides[0][last] === 1 &&
    [from.offset, ...strides[0].slice(0, -1)].every((step) => step % 4 === 0)
  )
}

/** y = the elements of `from` in order. */
export function copyKernel(label: string, from: Strided, isWide: boolean): Lowering {
  const per = isWide ? 4 : 1
  const { sizes, strides } = mergeAxes(from.shape, [from.strides])
  const own = sizes.map((size, axis) => (axis === sizes.length - 1 ? size / per : size))
  const steps = strides[0].map((step, axis) => (axis === sizes.length - 1 ? step : step / per))
  const at = signedOffset(coordinatesOf(own, 'i'), steps, from.offset / per)
  const element = isWide ? 'vec4<u32>' : 'u32'
  return {
    dispatches: eachElement({
      label,
      count: countElements(from.shape) / per,
      bindings: [reads('x', { in: 0 }, element), writes('y', { out: 0 }, element)],
      main: [`y[i] = x[${at}];`],
    }),
  }
}

/** y of shape `large` = x where the region lies, `fill` (32 bits) elsewhere. */
export function placeKernel(
  label: string,
  region: Region,
  small: Shape,
  large: Shape,
  fill: number,
): Lowering {
  const strides = stridesOf(small)
  interface Axis {
    size: number
    /** The stride in x, and how many steps the region takes along this axis. */
    stride: number
    steps: number
    start: number
    step: number
    isWhole: boolean
  }
  const axes: Axis[] = []
  large.forEach((size, axis) => {
    const own = region.axes.indexOf(axis)
    const steps = own < 0 ? 1 : small[own]
    const [start, step] = [region.start[axis], region.step[axis]]
    const isWhole = start === 0 && step === 1 && steps === size
    if (isWhole && size === 1) return
    const stride = own < 0 ? 0 : strides[own]
    const last = axes.at(-1)
    // Neighbours of which the region has all are one axis.
    if (isWhole && last?.isWhole && last.stride === stride * size) {
      last.size *= size
      last.stride = stride
      last.steps *= size
    } else axes.push({ size, stride, steps, start, step, isWhole })
  })
  const coordinates = coordinatesOf(
    axes.map(({ size }) => size),
    'i',
  )
  const lines: string[] = []
  const conditions: string[] = []
  const terms: string[] = []
  axes.forEach(({ stride, steps, start, step, isWhole }, n) => {
    let at = coordinates[n]
    if (!isWhole) {
      // Before the start the difference wraps around to a number far above every size.
      const from = step > 0 ? `${at} - ${start}u` : `${start}u - ${at}`
      const by = Math.abs(step)
      lines.push(`let d${n} = ${from};`)
      conditions.push(`d${n}${by === 1 ? '' : ` / ${by}u`} < ${steps}u`)
      if (by !== 1) conditions.push(`d${n} % ${by}u == 0u`)
      at = by === 1 ? `d${n}` : `d${n} / ${by}u`
    }
    if (stride !== 0) terms.push(stride === 1 ? at : `${at} * ${stride}u`)
  })
  const value = `x[${terms.join(' + ') || '0u'}]`
  lines.push(
    ...(conditions.length === 0
      ? [`y[i] = ${value};`]
      : [
          `var value = ${fill}u;`,
          `if (${conditions.join(' && ')}) { value = ${value}; }`,
          'y[i] = value;',
        ]),
  )
  return {
    dispatches: eachElement({
      label,
      count: countElements(large),
      bindings: [reads('x', { in: 0 }, 'u32'), writes('y', { out: 0 }, 'u32')],
      main: lines,
    }),
  }
}

/** The 32 bits of a number as an element of that dtype. */
export function wordOf(value: number, dtype: 'f32' | 'i32' | 'u32'): number {
  const view = new DataView(new ArrayBuffer(4))
  if (dtype === 'f32') view.setFloat32(0, value)
  else if (dtype === 'i32') view.setInt32(0, value)
  else view.setUint32(0, value)
  return view.getUint32(0)
}

/** The bits of NaN, as a word: WGSL has no literal for it. */
export const notANumber = 0x7fc0_0000
