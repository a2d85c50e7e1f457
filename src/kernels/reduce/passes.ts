import {
  countElements,
  type Shape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { naiveOr } from '../naive-or.ts'
import type { Lowering, Op, OpCall, Operand } from '../op.ts'
import { adding, type Join, rowKernel } from '../rows.ts'
import { ceilDiv, reads, type ShaderBinding, writes } from '../shader.ts'
import { broadcastIndex, collapseBroadcast, type Step, stepsToWgsl } from '../steps.ts'
import { type Pass, type ReduceAttrs, reducedDType, reductionPasses } from './shapes.ts'

/** How two elements become one. Elements are f32 for sums, order-keeping u32 keys for extremes; i32 of integers. */
export type Combine = 'sum' | 'max' | 'min'

export interface Source {
  readonly operand: Operand
  /** Broadcasts to the shape that is reduced. */
  readonly shape: Shape
}

export interface Reduction {
  readonly label: string
  readonly shape: Shape
  readonly axes: readonly number[]
  readonly combine: Combine
  /** What is reduced: `steps` over the sources, element by element. */
  readonly sources: readonly Source[]
  readonly steps: readonly Step[]
  /** Steps on the result, its input 0; `finalSteps` of a mean divide by the count. */
  readonly finalSteps: readonly Step[]
  readonly out: Operand
  /** Of the sources and the result; default f32. Those of i32 have no steps. */
  readonly dtype?: 'f32' | 'i32'
  /** The first scratch tensor that is free. */
  readonly firstScratch?: number
}

/** From how many elements on a pass of few results is cut into chunks, so that more than one workgroup has work. */
const splitFrom = 16_384
const chunk = 2048

/** One invocation a result, or a tree of them: that pays where there are few results, each of many elements. */
export function reductionVariants<A extends ReduceAttrs>(
  lower: (call: OpCall<A>, useTree: boolean) => Lowering,
  shapeOf: (call: OpCall<A>) => Shape = ({ inputs: [x] }) => x.shape,
): Pick<Op<A>, 'variants' | 'preferred'> {
  const hasPass = (call: OpCall<A>, is: (pass: Pass) => boolean) =>
    reductionPasses(shapeOf(call), call.attrs.axes).some(is)
  const canUseTree = (call: OpCall<A>) => hasPass(call, ({ reduced }) => reduced > 64)
  const isFewOfMany = ({ outer, reduced, inner }: Pass) => reduced >= 256 && outer * inner <= 1024
  return {
    ...naiveOr('tree', canUseTree, lower),
    preferred: (call) => (hasPass(call, isFewOfMany) ? 'tree' : 'naive'),
  }
}

/** How elements of a dtype become one, and the WGSL functions between them and values. */
interface Elements {
  readonly join: Join
  readonly wgsl: string
}

const plain = (dtype: 'f32' | 'i32', join: Join): Elements => ({
  join,
  wgsl: `fn element_of(value: ${dtype}) -> ${dtype} { return value; }
fn value_of(element: ${dtype}) -> ${dtype} { return element; }`,
})

/**
 * Extremes on the bits of floats as ordered integers: exact, free of order, and a NaN wins on every adapter.
 * The keys of NaNs are one end of the range, `start` (where nothing was seen) the other.
 */
const extreme = (name: 'max' | 'min', start: string, nanKey: string): Elements => ({
  join: { type: 'u32', start, by: `${name}(a, b)` },
  wgsl: `fn element_of(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return ${nanKey}; }
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}
fn value_of(key: u32) -> f32 {
  if (key == ${nanKey}) { return bitcast<f32>((key & 0u) | 0x7fc00000u); }
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u));
}`,
})

/** Integers wrap around. */
const elements: Readonly<Record<'f32' | 'i32', Record<Combine, Elements>>> = {
  f32: {
    sum: plain('f32', adding),
    max: extreme('max', '0u', '0xffffffffu'),
    min: extreme('min', '0xffffffffu', '0u'),
  },
  i32: {
    sum: plain('i32', { type: 'i32', start: '0i', by: 'a + b' }),
    max: plain('i32', { type: 'i32', start: '(-2147483647i - 1i)', by: 'max(a, b)' }),
    min: plain('i32', { type: 'i32', start: '2147483647i', by: 'min(a, b)' }),
  },
}

/** The WGSL function `load(at)`: the element at a flat index of the reduced shape. */
function loadWgsl(
  shape: Shape,
  sources: readonly Source[],
  steps: readonly Step[],
  dtype: 'f32' | 'i32',
): string {
  // Nothing is ever loaded, and coordinates of nothing would divide by 0.
  if (countElements(shape) === 0) return `fn load(at: u32) -> ${dtype} { return ${dtype}(); }`
  const names = sources.map((_, n) => `x${n}`)
  const lines: string[] = []
  const { output, operands } = collapseBroadcast(
    shape,
    sources.map((source) => source.shape),
  )
  const needsCoordinates = sources.some(
    (source) => countElements(source.shape) > 1 && !sameElements(source.shape, shape),
  )
  if (needsCoordinates) {
    let rest = 'at'
    for (let axis = output.length - 1; axis >= 0; axis--) {
      lines.push(`let i${axis} = ${axis === 0 ? rest : `${rest} % ${output[axis]}u`};`)
      if (axis > 0) lines.push(`let rest${axis} = ${rest} / ${output[axis]}u;`)
      rest = `rest${axis}`
    }
  }
  const coordinates = output.map((_, axis) => `i${axis}`)
  sources.forEach((source, n) => {
    const index =
      countElements(source.shape) === 1
        ? '0u'
        : sameElements(source.shape, shape)
          ? 'at'
          : broadcastIndex(output, operands[n], coordinates)
    lines.push(`let v${n} = ${names[n]}[${index}];`)
  })
  const chain = stepsToWgsl(
    steps,
    sources.map((_, n) => `v${n}`),
  )
  return [
    `fn load(at: u32) -> ${dtype} {`,
    ...[...lines, ...chain.lines, `return ${chain.result};`].map((line) => `  ${line}`),
    '}',
  ].join('\n')
}

/** Returns whether a source has an element for each of the shape's, in the same order. */
const sameElements = (source: Shape, shape: Shape): boolean =>
  sameShape(
    source.filter((size) => size !== 1),
    shape.filter((size) => size !== 1),
  )

function finishWgsl(steps: readonly Step[], dtype: 'f32' | 'i32'): string {
  const chain = stepsToWgsl(steps, ['value'])
  return `fn finish(value: ${dtype}) -> ${dtype} {\n${chain.lines.map((line) => `  ${line}\n`).join('')}  return ${chain.result};\n}`
}

/** Passes with long ones cut in two: chunks of a result first, then the chunks' results. */
function cutPasses(passes: readonly Pass[], isTree: boolean): (Pass & { chunks: number })[] {
  return passes.flatMap((pass) => {
    const { outer, reduced, inner } = pass
    if (!isTree || reduced < splitFrom || outer * inner > 64) return [{ ...pass, chunks: 1 }]
    const chunks = ceilDiv(reduced, chunk)
    return [
      { ...pass, chunks },
      { outer, reduced: chunks, inner, chunks: 1 },
    ]
  })
}

/** The lowering of an op that reduces its only input over axes. */
export const lowerOverAxes = (
  label: string,
  { inputs: [x], attrs: { axes } }: OpCall<ReduceAttrs>,
  combine: Combine,
  useTree: boolean,
): Lowering =>
  lowerReduction(
    {
      label,
      shape: x.shape,
      axes,
      combine,
      sources: [{ operand: { in: 0 }, shape: x.shape }],
      steps: [],
      finalSteps: [],
      out: { out: 0 },
      dtype: reducedDType(x),
    },
    useTree,
  )

/** The dispatches of a reduction and the scratch tensors they need, which follow those before `firstScratch`. */
export function lowerReduction(reduction: Reduction, useTree: boolean): Lowering {
  const { label, shape, axes, combine, sources, steps, finalSteps, out } = reduction
  const { firstScratch = 0, dtype = 'f32' } = reduction
  const results = shape.filter((_, axis) => !axes.includes(axis))
  if (countElements(results) === 0) return { dispatches: [] }
  const passes = cutPasses(reductionPasses(shape, axes), useTree)
  const scratch: TensorType[] = []
  const dispatches = passes.flatMap(({ outer, reduced, inner, chunks }, index) => {
    const isLast = index === passes.length - 1
    const isTree = useTree && (reduced > 64 || chunks > 1)
    const from: Source[] =
      index === 0
        ? [...sources]
        : [{ operand: { scratch: firstScratch + index - 1 }, shape: [outer, reduced, inner] }]
    const rows = { outer: outer * chunks, reduced, inner }
    if (!isLast) scratch.push(tensorType([rows.outer * inner], dtype))
    const { join, wgsl } = elements[dtype][combine]
    const bindings: ShaderBinding[] = from.map(({ operand }, n) => reads(`x${n}`, operand, dtype))
    // Row r is chunk k = r / inner % chunks of a line: its places k * chunk up to the next chunk's.
    const line = `row / ${inner * chunks}u * ${reduced * inner}u + row % ${inner}u`
    return rowKernel({
      label: `${label} ${outer}x${reduced}x${inner}${isTree ? ' tree' : ''}${chunks > 1 ? ` in ${chunks}` : ''}`,
      rows,
      lanes: isTree ? 64 : 1,
      bindings: [...bindings, writes('y', isLast ? out : { scratch: firstScratch + index }, dtype)],
      functions: [
        wgsl,
        index === 0
          ? loadWgsl(shape, from, steps, dtype)
          : loadWgsl(from[0].shape, from, [], dtype),
        finishWgsl(isLast ? finalSteps : [], dtype),
      ].join('\n'),
      ...(chunks > 1 && {
        first: line,
        range: [
          `row / ${inner}u % ${chunks}u * ${chunk}u`,
          `min(begin + ${chunk}u, ${reduced}u)`,
        ] as const,
      }),
      reductions: [{ name: 'total', join, of: 'element_of(load(at))' }],
      once: ['y[row] = finish(value_of(total));'],
    })
  })
  return { dispatches, scratch }
}
