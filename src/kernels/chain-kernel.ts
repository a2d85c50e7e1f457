import { countElements, type DType, type Shape, type TensorType } from '../util/shape.ts'
import { eachElement } from './elements.ts'
import type { Lowering } from './op.ts'
import { ceilDiv, reads, type ShaderBinding, writes } from './shader.ts'
import {
  broadcastIndex,
  chainShape,
  collapseBroadcast,
  type Step,
  stepsToWgsl,
  wideValue,
} from './steps.ts'
import { coordinatesOf } from './strided.ts'

const elementOf = (dtype: DType, isVector: boolean): ShaderBinding['element'] =>
  dtype === 'f16' ? (isVector ? 'vec2<u32>' : 'u32') : isVector ? `vec4<${dtype}>` : dtype

/** WGSL of an operand's element, or of 4 neighbours, as f32. */
function loadOf(name: string, dtype: DType, index: string, isVector: boolean): string {
  if (dtype === 'f16') {
    return isVector
      ? `halves_of(${name}[${index}])`
      : `half_of(${name}[(${index}) >> 1u], ${index})`
  }
  const element = `${name}[${index}]`
  return dtype === 'f32' ? element : `${isVector ? 'vec4<f32>' : 'f32'}(${element})`
}

/**
 * Returns the kernel of a chain over broadcast operands.
 *
 * Bindings: `in0` .. `inN` (operands), `y` (the output's elements in row-major order).
 * One invocation computes one element (two, where y is f16), or 4 neighbours (`wide`) where the last collapsed axis is a
 * multiple of 4.
 */
export function lowerChain(
  label: string,
  steps: readonly Step[],
  inputs: readonly TensorType[],
  outputShape: Shape,
  isWide: boolean,
  dtype: 'f32' | 'f16' = 'f32',
): Lowering {
  const shapes = inputs.map(({ shape }) => shape)
  const count = countElements(chainShape(label, [...shapes, outputShape]))
  if (count === 0) return { dispatches: [] }
  const { output, operands } = collapseBroadcast(outputShape, shapes)
  const last = output.length - 1
  const isHalf = dtype === 'f16'
  const perInvocation = isWide ? 4 : isHalf ? 2 : 1
  const invocations = ceilDiv(count, perInvocation)
  const isVector = operands.map((shape) => isWide && shape[last] !== 1)

  const lines: string[] = []
  const wideSizes = output.map((size, axis) => (axis === last && isWide ? size / 4 : size))
  /** Lines that load the operands at these coordinates into `v0`, `v1`, ... after a prefix. */
  const load = (coordinates: readonly string[], prefix = '') =>
    operands.map((shape, n) => {
      const own = shape.map((size, axis) => (axis === last && isVector[n] ? size / 4 : size))
      // A binding that no step reads still takes its place in the bind group.
      const index = broadcastIndex(wideSizes, own, coordinates)
      return `let ${prefix}v${n} = ${loadOf(`in${n}`, inputs[n].dtype, index, isVector[n])};`
    })
  if (isHalf && !isWide) {
    // The element after the last is the last once more.
    const results = [0, 1].map((half) => {
      const flat = `at${half}`
      lines.push(
        `let ${flat} = min(i * 2u + ${half}u, ${count - 1}u);`,
        ...load(coordinatesOf(output, flat), `h${half}_`),
      )
      const names = operands.map((_, n) => `h${half}_v${n}`)
      const chain = stepsToWgsl(steps, names, `h${half}_s`)
      lines.push(...chain.lines)
      return chain.result
    })
    lines.push(`y[i] = pack_half(${results.join(', ')});`)
  } else {
    lines.push(...flatCoordinates(wideSizes), ...load(wideSizes.map((_, axis) => `i${axis}`)))
  }
  if (isWide) {
    const results = ['x', 'y', 'z', 'w'].map((lane) => {
      const inputs = operands.map((_, n) => (isVector[n] ? `v${n}.${lane}` : `v${n}`))
      const chain = stepsToWgsl(steps, inputs, lane)
      lines.push(...chain.lines)
      return chain.result
    })
    lines.push(`y[i] = ${wideValue(results, isHalf)};`)
  } else if (!isHalf) {
    const inputs = operands.map((_, n) => `v${n}`)
    const chain = stepsToWgsl(steps, inputs)
    lines.push(...chain.lines, `y[i] = ${chain.result};`)
  }

  return {
    dispatches: eachElement({
      label,
      count: invocations,
      bindings: [
        ...inputs.map(({ dtype }, n) => reads(`in${n}`, { in: n }, elementOf(dtype, isVector[n]))),
        writes('y', { out: 0 }, elementOf(dtype, isWide)),
      ],
      main: lines,
    }),
  }
}

/** `let i0 = ...`: the coordinates of the element `i`. */
function flatCoordinates(sizes: Shape): string[] {
  if (sizes.length === 1) return ['let i0 = i;']
  const lines: string[] = []
  let rest = 'i'
  for (let axis = sizes.length - 1; axis >= 0; axis--) {
    if (axis === 0) lines.push(`let i0 = ${rest};`)
    else {
      lines.push(`let i${axis} = ${rest} % ${sizes[axis]}u;`)
      lines.push(`let rest${axis} = ${rest} / ${sizes[axis]}u;`)
      rest = `rest${axis}`
    }
  }
  return lines
}

/** Returns whether the wide form fits: the last axis, after collapsing, is a multiple of 4. */
export function canBeWide(shapes: readonly Shape[], outputShape: Shape): boolean {
  const { output } = collapseBroadcast(outputShape, shapes)
  return output.length > 0 && output[output.length - 1] % 4 === 0
}
