import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, tensorType } from '../../util/shape.ts'
import { defineOp, type Op } from '../op.ts'
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
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'

export interface DropoutAttrs {
  /** The share of elements that become 0; the others grow by 1 / (1 - p). */
  readonly p: number
  /** Tells masks of one step apart. */
  readonly layer: number
  /** Samples that x consists of, one after the other. */
  readonly samples: number
  readonly random: RandomSlots
}

const threads = 64

const scaleOf = (p: number): number => (p < 1 ? 1 / (1 - p) : 0)

/** y = x where the mask keeps it, times 1 / (1 - p), else 0. It is its own gradient: the mask is drawn again, never stored. */
export const dropout: Op<DropoutAttrs> = defineOp<DropoutAttrs>({
  name: 'dropout',
  infer([x], { p, samples, layer }) {
    if (x.dtype !== 'f32' || !(p >= 0 && p <= 1) || !(layer >= 0 && layer < maxLayers)) {
      throw new ShapeError(
        'shape.unsupported',
        `dropout: expected an f32 tensor, p from 0 to 1 and a layer below ${maxLayers}, got ${x.dtype}${formatShape(x.shape)}, p ${p}, layer ${layer}. Check the arguments.`,
      )
    }
    if (!(samples > 0) || countElements(x.shape) % samples !== 0) {
      throw new ShapeError(
        'shape.mismatch',
        `dropout: expected ${samples} samples of equal size, got ${formatShape(x.shape)}. Give the number of samples that x holds.`,
      )
    }
    return [x]
  },
  variants: [
    {
      name: 'naive',
      lower({ inputs: [x], attrs: { p, layer, samples, random } }) {
        const count = countElements(x.shape)
        if (count === 0) return { dispatches: [] }
        const perSample = count / samples
        const isWide = perSample % 4 === 0
        const blocks = ceilDiv(perSample, 4)
        const groups = linearGroups(ceilDiv(blocks * samples, threads))
        const element = isWide ? 'vec4<f32>' : 'f32'
        const store = isWide
          ? '  y[i] = select(vec4<f32>(0.0), x[i] * SCALE, kept);'
          : ['x', 'y', 'z', 'w']
              .map(
                (lane, k) =>
                  `  if (first + ${k}u < ${perSample}u) { y[at + ${k}u] = select(0.0, x[at + ${k}u] * SCALE, kept.${lane}); }`,
              )
              .join('\n')
        return {
          dispatches: [
            dispatch({
              label: `dropout ${count}`,
              bindings: [
                reads('x', { in: 0 }, element),
                reads('scalars', 'scalars'),
                writes('y', { out: 0 }, element),
              ],
              constants: { SCALE: { f32: scaleOf(p) } },
              body: `// y = x / (1 - p) where the mask keeps it, else 0. One invocation makes 4 neighbours of one sample.
${maskWgsl(random)}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * ${groups[0]}u + group.x) * ${threads}u + lane;
  if (i >= ${blocks * samples}u) { return; }
  let sample = i / ${blocks}u;
  let block = i % ${blocks}u;
  let words = mask_words(${layerWord(layer)}u, sample, block) >> vec4<u32>(8u);
  let kept = words >= vec4<u32>(${dropThreshold(p)}u);
${isWide ? '' : `  let first = block * 4u;\n  let at = sample * ${perSample}u + first;`}
${store}
}
`,
              groups,
            }),
          ],
        }
      },
    },
  ],
  gradient(context) {
    const [dy] = context.outputGradients
    return dy ? context.emit(dropout, [dy], context.attrs) : [undefined]
  },
  reference([x], { attrs: { p, layer, samples, random } }, scalars) {
    const key = maskKeyOf(scalars, random)
    const perSample = x.length / samples
    const threshold = dropThreshold(p)
    return [
      Float64Array.from(x, (value, at) =>
        keeps(key, layer, Math.floor(at / perSample), at % perSample, threshold)
          ? value * scaleOf(p)
          : 0,
      ),
    ]
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
