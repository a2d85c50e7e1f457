import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, tensorType } from '../../util/shape.ts'
import { eachElement, eachFloat } from '../elements.ts'
import { storedAs } from '../half.ts'
import { floatElement, wideElement } from '../half-bindings.ts'
import { type Dispatch, defineOp, type HalfAttrs, type Op, type OpCall } from '../op.ts'
import {
  dropThreshold,
  keeps,
  layerWord,
  maskKeyOf,
  maskWgsl,
  maxLayers,
  type RandomSlots,
  randomScalars,
} from '../random/masks.ts'
import { ceilDiv, reads, writes } from '../shader.ts'

export interface DropoutAttrs extends HalfAttrs {
  /** The share of elements that become 0; the others grow by 1 / (1 - p). */
  readonly p: number
  /** Number that makes masks of one step differ. */
  readonly layer: number
  /** Samples that x consists of, one after the other. */
  readonly samples: number
  readonly random: RandomSlots
}

const scaleOf = (p: number): number => (p < 1 ? 1 / (1 - p) : 0)

/** Where samples do not fall into whole fours, words of f16 may hold elements of two samples: each element draws its own mask. */
function wordByWord({ inputs: [x], outputs: [y], attrs }: OpCall<DropoutAttrs>) {
  const { p, layer, samples, random } = attrs
  const count = countElements(x.shape)
  const perSample = count / samples
  return eachFloat({
    label: `dropout ${count}`,
    bindings: [reads('x', { in: 0 }, floatElement(x)), reads('scalars', 'scalars')],
    output: { name: 'y', type: y },
    constants: { SCALE: { f32: scaleOf(p) } },
    functions: `${maskWgsl(random)}
fn element(at: u32) -> f32 {
  let place = at % ${perSample}u;
  let words = mask_words(${layerWord(layer)}u, at / ${perSample}u, place / 4u) >> vec4<u32>(8u);
  return select(0.0, x[at] * SCALE, words[place % 4u] >= ${dropThreshold(p)}u);
}`,
  })
}

/** Whether each sample falls into whole fours. */
const isWhole = ({ inputs: [x], attrs: { samples } }: OpCall<DropoutAttrs>): boolean =>
  (countElements(x.shape) / samples) % 4 === 0

/** An invocation makes 4 neighbours of one sample, bound as words or as vectors. */
function blockwise(call: OpCall<DropoutAttrs>, isWide: boolean): Dispatch[] {
  const {
    inputs: [x],
    outputs: [y],
    attrs: { p, layer, samples, random },
  } = call
  if (!isWide && y.dtype === 'f16') return wordByWord(call)
  const count = countElements(x.shape)
  const perSample = count / samples
  const blocks = ceilDiv(perSample, 4)
  const elementOf = isWide ? wideElement : floatElement
  return eachElement({
    label: `dropout ${count}`,
    count: blocks * samples,
    bindings: [
      reads('x', { in: 0 }, elementOf(x)),
      reads('scalars', 'scalars'),
      writes('y', { out: 0 }, elementOf(y)),
    ],
    constants: { SCALE: { f32: scaleOf(p) } },
    functions: maskWgsl(random),
    main: [
      `let sample = i / ${blocks}u;`,
      `let block = i % ${blocks}u;`,
      `let words = mask_words(${layerWord(layer)}u, sample, block) >> vec4<u32>(8u);`,
      `let kept = words >= vec4<u32>(${dropThreshold(p)}u);`,
      ...(isWide
        ? ['y[i] = select(vec4<f32>(0.0), x[i] * SCALE, kept);']
        : [
            'let first = block * 4u;',
            `let at = sample * ${perSample}u + first;`,
            ...['x', 'y', 'z', 'w'].map((lane, k) => {
              const store = `y[at + ${k}u] = select(0.0, x[at + ${k}u] * SCALE, kept.${lane});`
              return isWhole(call) ? store : `if (first + ${k}u < ${perSample}u) { ${store} }`
            }),
          ]),
    ],
  })
}

/** y = x where the mask keeps it, times 1 / (1 - p), else 0. It is its own gradient: the mask is drawn again, never stored. */
export const dropout: Op<DropoutAttrs> = defineOp<DropoutAttrs>({
  name: 'dropout',
  takesHalf: true,
  givesHalf: () => true,
  infer([x], { p, samples, layer, half }) {
    const isFloat = x.dtype === 'f32' || x.dtype === 'f16'
    if (!isFloat || !(p >= 0 && p <= 1) || !(layer >= 0 && layer < maxLayers)) {
      throw new ShapeError(
        'shape.unsupported',
        `dropout: expected a tensor of f32 or f16, p from 0 to 1 and a layer below ${maxLayers}, got ${x.dtype}${formatShape(x.shape)}, p ${p}, layer ${layer}. Check the arguments.`,
      )
    }
    if (!(samples > 0) || countElements(x.shape) % samples !== 0) {
      throw new ShapeError(
        'shape.mismatch',
        `dropout: expected ${samples} samples of equal size, got ${formatShape(x.shape)}. Pass the number of samples in x.`,
      )
    }
    return [tensorType(x.shape, half ? 'f16' : 'f32')]
  },
  variants: [
    { name: 'naive', lower: (call) => ({ dispatches: blockwise(call, false) }) },
    {
      name: 'vectors',
      when: isWhole,
      lower: (call) => ({ dispatches: blockwise(call, true) }),
    },
  ],
  // In WebAssembly four invocations are computed at once, but none that binds vectors. For f16 the plain kernel draws a mask for each element.
  preferred: (call, { isWasm }) =>
    isWhole(call) && (!isWasm || call.outputs[0].dtype === 'f16') ? 'vectors' : 'naive',
  gradient(context) {
    const [dy] = context.outputGradients
    const { half: _, ...attrs } = context.attrs
    const isHalf = context.inputs[0].type.dtype === 'f16'
    return dy
      ? context.emit(dropout, [dy], { ...attrs, ...(isHalf && { half: true }) })
      : [undefined]
  },
  reference([x], { attrs }, scalars) {
    const { p, layer, samples, random } = attrs
    const key = maskKeyOf(scalars, random)
    const perSample = x.length / samples
    const threshold = dropThreshold(p)
    const y = Float64Array.from(x, (value, at) =>
      keeps(key, layer, Math.floor(at / perSample), at % perSample, threshold)
        ? value * scaleOf(p)
        : 0,
    )
    return [storedAs(attrs, y)]
  },
  tolerance: { absolute: 0, relative: 2e-7, because: 'one product in f32; the mask is exact' },
  cases: [
    {
      name: 'one element',
      inputs: [tensorType([1])],
      attrs: { p: 0.5, layer: 0, samples: 1, random: { slot: 0 } },
      scalars: randomScalars(1, 2, 3),
    },
    {
      name: 'p 0.5, 3 samples of 37',
      inputs: [tensorType([3, 37])],
      attrs: { p: 0.5, layer: 5, samples: 3, random: { slot: 1 } },
      scalars: [7, ...randomScalars(2 ** 52 + 12_345, 70_000, 2 ** 31 + 5)],
    },
    {
      name: 'p 0.1, 5 samples of 64, last sample wraps',
      inputs: [tensorType([5, 8, 8])],
      attrs: { p: 0.1, layer: 2 ** 23, samples: 5, random: { slot: 0 } },
      scalars: randomScalars(0, 0xffffffff, 0xfffffffe),
    },
    {
      name: 'f16, 3 samples of 37',
      inputs: [tensorType([3, 37], 'f16')],
      attrs: { p: 0.5, layer: 5, samples: 3, random: { slot: 0 }, half: true },
      scalars: randomScalars(7, 8, 9),
    },
    {
      name: 'to f16, 2 samples of 12',
      inputs: [tensorType([2, 12])],
      attrs: { p: 0.1, layer: 5, samples: 2, random: { slot: 0 }, half: true },
      scalars: randomScalars(7, 8, 9),
    },
    {
      name: 'p 0',
      inputs: [tensorType([2, 6])],
      attrs: { p: 0, layer: 1, samples: 2, random: { slot: 0 } },
      scalars: randomScalars(9, 1, 0),
    },
    {
      name: 'p 1',
      inputs: [tensorType([2, 6])],
      attrs: { p: 1, layer: 1, samples: 2, random: { slot: 0 } },
      scalars: randomScalars(9, 1, 0),
    },
    {
      name: 'nothing',
      inputs: [tensorType([2, 0])],
      attrs: { p: 0.5, layer: 1, samples: 2, random: { slot: 0 } },
      scalars: randomScalars(9, 1, 0),
    },
    {
      name: 'huge',
      inputs: [tensorType([4, 130])],
      attrs: { p: 0.25, layer: 3, samples: 2, random: { slot: 0 } },
      scalars: randomScalars(3, 4, 5),
      fill: 'huge',
    },
  ],
})
