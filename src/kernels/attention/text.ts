import type { HostDType, Shape, TensorType } from '../../util/shape.ts'
import type { HalfElement } from '../half-bindings.ts'
import type { Operand } from '../op.ts'
import { dropThreshold, layerWord, maskWgsl } from '../random/masks.ts'
import { f32Literal, reads, type ShaderBinding } from '../shader.ts'
import { broadcastIndex } from '../steps.ts'
import { lowestScore } from './attention.ref.ts'
import {
  type AttentionAttrs,
  type AttentionSizes,
  outputPlace,
  projectionPlace,
  projectionsOf,
  type RowPlace,
} from './geometry.ts'

/** A tensor whose rows a kernel reads or writes four elements at a time: its variable and where its rows lie. */
export interface RowTensor {
  readonly variable: string
  readonly place: RowPlace
}

/** What all attention kernels are written with. */
export interface AttentionText {
  readonly sizes: AttentionSizes
  readonly attrs: AttentionAttrs
  /** Fours in a row; the last one is filled up with zeros. */
  readonly units: number
  /** True if rows are bound as vec4. */
  readonly isWide: boolean
  readonly element: 'f32' | 'vec4<f32>'
  /** The elements of o, and of the gradients by the projections. */
  readonly outputElement: 'f32' | 'vec4<f32>' | HalfElement
  readonly gradientElement: 'f32' | 'vec4<f32>' | HalfElement
  /** True if queries, keys and values are f16. */
  readonly isHalf: boolean
  /** Expression: where row t of head h of sample b begins. */
  start(tensor: RowTensor, t: string, h?: string): string
  /** WGSL function `load_<variable>(start, unit)`. */
  loader(variable: string): string
  /** Statement: stores four elements. */
  store(variable: string, start: string, unit: number, value: string): string
  /** WGSL of `seen(b, h, i, j, score) -> vec2` (score after the mask, 1 if seen) and `drop_factor(b, h, i, j)`. */
  readonly functions: string
  /** Bindings that `functions` reads. */
  maskBindings(maskInput: number): ShaderBinding[]
}

export function attentionText(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): AttentionText {
  const { d, batch, heads, tq, tk, isHalf } = sizes
  const isWide = d % 4 === 0
  const element = isWide ? 'vec4<f32>' : 'f32'
  const halfElement = isWide ? 'vec4<f16>' : 'f16'
  const units = Math.ceil(d / 4)
  const unitElements = isWide ? units : d
  const full: Shape = [batch, heads, tq, tk]
  const maskAt = mask
    ? `mask[${broadcastIndex(full, mask.shape, ['b', 'h', 'i', 'j'])}]`
    : undefined
  const maskLines =
    attrs.mask === 'additive'
      ? [
          `let added = ${maskAt};`,
          `return vec2<f32>(score + added, select(0.0, 1.0, added > ${f32Literal(lowestScore)}));`,
        ]
      : attrs.mask
        ? [
            `return vec2<f32>(score, select(0.0, 1.0, f32(${maskAt}) ${attrs.mask === 'boolean' ? '!=' : '=='} 0.0));`,
          ]
        : ['return vec2<f32>(score, 1.0);']
  const drop = attrs.dropout
  return {
    sizes,
    attrs,
    units,
    isWide,
    element,
    outputElement: sizes.isOutputHalf ? halfElement : element,
    gradientElement: attrs.half ? halfElement : element,
    isHalf,
    start: (tensor, t, h) => `${rowOf(tensor, t, h)} * ${unitElements}u`,
    loader: (variable) => {
      const at = (index: string) => elementAt(variable, index, isHalf)
      const isPacked = isHalf && isProjection(variable)
      return isWide
        ? `fn load_${variable}(start: u32, unit: u32) -> vec4<f32> { return ${isPacked ? `halves_of(${variable}[start + unit])` : `${variable}[start + unit]`}; }`
        : `fn load_${variable}(start: u32, unit: u32) -> vec4<f32> {
  let at = start + unit * 4u;
  let left = ${d}u - unit * 4u;
  var value = vec4<f32>(${at('at')}, 0.0, 0.0, 0.0);
  if (left > 1u) { value.y = ${at('at + 1u')}; }
  if (left > 2u) { value.z = ${at('at + 2u')}; }
  if (left > 3u) { value.w = ${at('at + 3u')}; }
  return value;
}`
    },
    store: (variable, start, unit, value) =>
      isWide
        ? `${variable}[${start} + ${unit}u] = ${value};`
        : ['x', 'y', 'z', 'w']
            .slice(0, d - unit * 4)
            .map((lane, k) => `${variable}[${start} + ${unit * 4 + k}u] = (${value}).${lane};`)
            .join(' '),
    functions: `fn seen(b: u32, h: u32, i: u32, j: u32, score: f32) -> vec2<f32> {
  ${maskLines.join('\n  ')}
}
${
  drop
    ? `${maskWgsl(drop.random)}
fn drop_factors(b: u32, h: u32, i: u32, block: u32) -> vec4<f32> {
  let words = mask_words(${layerWord(drop.layer)}u, b, (h * ${tq}u + i) * ${Math.ceil(tk / 4)}u + block);
  return select(vec4<f32>(0.0), vec4<f32>(${f32Literal(drop.p < 1 ? 1 / (1 - drop.p) : 0)}), (words >> vec4<u32>(8u)) >= vec4<u32>(${dropThreshold(drop.p)}u));
}

fn drop_factor(b: u32, h: u32, i: u32, j: u32) -> f32 {
  return drop_factors(b, h, i, j / 4u)[j % 4u];
}`
    : ''
}`,
    maskBindings: (maskInput) => [
      ...(mask ? [reads('mask', { in: maskInput }, mask.dtype as HostDType)] : []),
      ...(drop ? [reads('scalars', 'scalars')] : []),
    ],
  }
}

/** WGSL: the number of row t of the query head h, or of that head's keys or values, of sample b. */
export const rowOf = ({ place }: Pick<RowTensor, 'place'>, t: string, h = 'h'): string =>
  `(b * ${place.batch}u + ${h}${place.group > 1 ? ` / ${place.group}u` : ''} * ${place.head}u + (${t}) * ${place.position}u + ${place.first}u)`

/** WGSL name of a row's own head: where that is one of keys and values, of the first query head that it serves. */
export const ownHead = ({ group }: RowPlace): string => (group > 1 ? 'first_h' : 'h')

/** WGSL statement that declares it, from an expression that counts the tensor's heads, of all samples. */
export const locateHead = (place: RowPlace, { heads }: AttentionSizes, count: string): string =>
  `let ${ownHead(place)} = ${count} % ${heads / place.group}u${place.group > 1 ? ` * ${place.group}u` : ''};`

/** WGSL that runs `body` for each query head `h` that the own head serves, one after the other. */
export const eachHead = (place: RowPlace, body: string): string =>
  place.group > 1 ? `for (var h = first_h; h < first_h + ${place.group}u; h++) {\n${body}\n}` : body

const isProjection = (variable: string): boolean => ['q', 'k', 'v', 'qkv'].includes(variable)

/** WGSL of one element of a tensor whose elements are bound one by one (two by two, where it is f16), as f32. */
export const elementAt = (variable: string, index: string, isHalf: boolean): string =>
  isHalf && isProjection(variable)
    ? `half_of(${variable}[(${index}) >> 1u], ${index})`
    : `${variable}[${index}]`

/** Queries, keys and values as a kernel sees them, from input `first` on. */
export function projectionTensors(
  { attrs, sizes, element, isHalf, isWide }: AttentionText,
  first: number,
  wanted: readonly number[] = [0, 1, 2],
): { tensors: readonly RowTensor[]; bindings: ShaderBinding[]; variables: string[] } {
  const isPacked = projectionsOf(attrs.layout) === 1
  const names = isPacked ? ['qkv', 'qkv', 'qkv'] : ['q', 'k', 'v']
  const bound = isPacked ? [0] : wanted
  return {
    tensors: names.map((variable, n) => ({
      variable,
      place: projectionPlace(attrs, sizes, n),
    })),
    bindings: bound.map((n) =>
      reads(names[n], { in: first + n }, isHalf ? (isWide ? 'vec2<u32>' : 'u32') : element),
    ),
    variables: bound.map((n) => names[n]),
  }
}

/** The output, or its gradient, under a variable's name. */
export const outputTensor = ({ attrs, sizes }: AttentionText, variable: string): RowTensor => ({
  variable,
  place: outputPlace(attrs, sizes),
})

/** Gradients by the projections: their variables, places and operands. */
export function gradientTensors({ attrs, sizes }: AttentionText): {
  variable: string
  place: RowPlace
  operand: Operand
}[] {
  const isPacked = projectionsOf(attrs.layout) === 1
  return ['dq', 'dk', 'dv'].map((name, n) => ({
    variable: isPacked ? 'dqkv' : name,
    place: projectionPlace(attrs, sizes, n),
    operand: { out: isPacked ? 0 : n },
  }))
}
