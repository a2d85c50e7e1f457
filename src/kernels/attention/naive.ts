import type { TensorType } from '../../util/shape.ts'
import { tensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import { halfWords } from '../half-bindings.ts'
import type { Dispatch, Lowering, Operand } from '../op.ts'
import { reads, type ShaderBinding, writes } from '../shader.ts'
import { lowestScore } from './attention.ref.ts'
import { gradProjections } from './flash.ts'
import {
  type AttentionAttrs,
  type AttentionSizes,
  outputPlace,
  projectionsOf,
  type RowPlace,
} from './geometry.ts'
import {
  type AttentionText,
  attentionText,
  eachHead,
  elementAt,
  gradientTensors,
  locateHead,
  outputTensor,
  ownHead,
  projectionTensors,
  type RowTensor,
  rowOf,
} from './text.ts'

// The plain form: one invocation makes one element and computes every score that it needs, again where others have. Any shape, no tiles.

/** Where row `t` begins, in elements. */
const start = (tensor: Pick<RowTensor, 'place'>, t: string, d: number, h?: string) =>
  `${rowOf(tensor, t, h)} * ${d}u`

/** Functions `score(b, h, i, j)` (see `seen`) and `product(b, h, i, j)`, the dot of dy and a value. */
function pairFunctions(text: AttentionText, withProduct: boolean): string {
  const { sizes, attrs, isHalf } = text
  const { d } = sizes
  const { tensors } = projectionTensors(text, 0)
  const [q, k, v] = tensors
  const dy = outputTensor(text, 'dy')
  const product = `
fn product(b: u32, h: u32, i: u32, j: u32) -> f32 {
  let start_y = ${start(dy, 'i', d)};
  let start_v = ${start(v, 'j', d)};
  var total = 0.0;
  for (var c = 0u; c < ${d}u; c++) { total += dy[start_y + c] * ${elementAt(v.variable, 'start_v + c', isHalf)}; }
  return total;
}
`
  return `${text.functions}
fn score(b: u32, h: u32, i: u32, j: u32) -> vec2<f32> {
  ${attrs.isCausal ? 'if (j > i) { return vec2<f32>(0.0, 0.0); }' : ''}
  let start_q = ${start(q, 'i', d)};
  let start_k = ${start(k, 'j', d)};
  var total = 0.0;
  for (var c = 0u; c < ${d}u; c++) { total += ${elementAt(q.variable, 'start_q + c', isHalf)} * ${elementAt(k.variable, 'start_k + c', isHalf)}; }
  return seen(b, h, i, j, total * SCALE);
}
${withProduct ? product : ''}`
}

/** A kernel with one invocation for each of `count` indices `at`. */
const elementwise = (
  text: AttentionText,
  label: string,
  count: number,
  bindings: readonly ShaderBinding[],
  functions: string,
  body: string,
): Dispatch[] =>
  eachElement({
    label,
    count,
    bindings,
    constants: { SCALE: { f32: text.attrs.scale }, LOWEST: { f32: lowestScore } },
    functions: `${functions}\nfn element(at: u32) {\n${body}\n}`,
    main: ['element(i);'],
  })

/** Position, own head and sample `b` of the flat row `row` of a tensor. */
const rowPlace = (sizes: AttentionSizes, place: RowPlace, rows: number, name: string) => `
  let ${name} = row % ${rows}u;
  ${locateHead(place, sizes, `row / ${rows}u`)}
  let b = row / ${(rows * sizes.heads) / place.group}u;`

/** A kernel that makes each element `c` of the target's rows by `lines`, which end with `value`; words of two, where they are f16. */
function rowElements(
  text: AttentionText,
  label: string,
  { operand, isHalf, ...target }: RowTensor & { operand: Operand; isHalf: boolean },
  { rows, name }: { rows: number; name: string },
  bindings: readonly ShaderBinding[],
  functions: string,
  lines: string,
  value: string,
): Dispatch[] {
  const { batch, heads, d } = text.sizes
  const { variable, place } = target
  const count = ((batch * heads) / place.group) * rows * d
  const all = [...bindings, writes(variable, operand, isHalf ? 'f16' : 'f32')]
  const put = `let put = ${start(target, name, d, ownHead(place))};`
  if (!isHalf) {
    const body = `  let row = at / ${d}u;
  let c = at % ${d}u;${rowPlace(text.sizes, place, rows, name)}
${lines}  ${put}
  ${variable}[put + c] = ${value};`
    return elementwise(text, label, count, all, functions, body)
  }
  const body = `  let row = at * 2u / ${d}u;
  let first = at * 2u % ${d}u;${rowPlace(text.sizes, place, rows, name)}
  var halves = vec2<f32>(0.0, 0.0);
  for (var k = 0u; k < 2u; k++) {
  let c = first + k;
${lines}  halves[k] = ${value};
  }
  ${put}
  ${variable}[(put + first) >> 1u] = pack_half(halves.x, halves.y);`
  return elementwise(text, label, halfWords(count), all, functions, body)
}

const scalarBindings = (bindings: readonly ShaderBinding[]): ShaderBinding[] =>
  bindings.map((binding) =>
    binding.element === 'vec4<f32>'
      ? { ...binding, element: 'f32' as const }
      : binding.element === 'vec2<u32>'
        ? { ...binding, element: 'u32' as const }
        : binding,
  )

/** lse, then o from it. */
export function naiveForward(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): Lowering {
  const { batch, heads, tq, tk, d } = sizes
  const text = attentionText(sizes, attrs, mask)
  const rows = batch * heads * tq
  if (rows === 0) return { dispatches: [] }
  const projections = projectionTensors(text, 0)
  const scores = projectionTensors(text, 0, [0, 1])
  const masks = text.maskBindings(projectionsOf(attrs.layout))
  const [, , v] = projections.tensors
  const functions = pairFunctions(text, false)
  const lse = elementwise(
    text,
    'attention lse naive',
    rows,
    [...scalarBindings(scores.bindings), ...masks, writes('lse', { out: 1 })],
    functions,
    `  let row = at;${rowPlace(sizes, outputPlace(attrs, sizes), tq, 'i')}
  var top = LOWEST;
  for (var j = 0u; j < ${tk}u; j++) {
    let pair = score(b, h, i, j);
    if (pair.y != 0.0) { top = max(top, pair.x); }
  }
  var sum = 0.0;
  for (var j = 0u; j < ${tk}u; j++) {
    let pair = score(b, h, i, j);
    if (pair.y != 0.0) { sum += exp_of(pair.x - top); }
  }
  lse[row] = select(top + log_of(sum), 0.0, sum == 0.0);`,
  )
  if (d === 0) return { dispatches: lse }
  const out = rowElements(
    text,
    'attention naive',
    { ...outputTensor(text, 'o'), operand: { out: 0 }, isHalf: sizes.isOutputHalf },
    { rows: tq, name: 'i' },
    [...scalarBindings(projections.bindings), ...masks, reads('lse', { out: 1 })],
    functions,
    `  var total = 0.0;
  // Of large scores lse is rounded by more than the weights' sum may differ from 1.
  var sum = 0.0;
  for (var j = 0u; j < ${tk}u; j++) {
    let pair = score(b, h, i, j);
    if (pair.y != 0.0) {
      let start_v = ${start(v, 'j', d)};
      let p = exp_of(pair.x - lse[row]);
      sum += p;
      total += p${attrs.dropout ? ' * drop_factor(b, h, i, j)' : ''} * ${elementAt(v.variable, 'start_v + c', text.isHalf)};
    }
  }
`,
    'select(total / sum, 0.0, sum == 0.0)',
  )
  return { dispatches: [...lse, ...out] }
}

/** The rows' sums of dy * o, then each gradient in a separate kernel. */
export function naiveBackward(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): Lowering {
  const { batch, heads, tq, tk, d } = sizes
  const text = attentionText(sizes, attrs, mask)
  if (batch * heads * d === 0) return { dispatches: [] }
  const rowCount = batch * heads * tq
  const masks = text.maskBindings(gradProjections + projectionsOf(attrs.layout))
  const { tensors } = projectionTensors(text, 0)
  const dy = outputTensor(text, 'dy')
  const drop = (i: string, j: string) => (attrs.dropout ? ` * drop_factor(b, h, ${i}, ${j})` : '')
  const rows = elementwise(
    text,
    'attentionGrad rows naive',
    rowCount,
    [
      reads('dy', { in: 0 }),
      reads('o', { in: 1 }, sizes.isOutputHalf ? 'f16' : 'f32'),
      reads('lse', { in: 2 }),
      writes('rows', { scratch: 0 }),
    ],
    '',
    `  let row = at;${rowPlace(sizes, dy.place, tq, 'i')}
  let start_y = ${start(dy, 'i', d)};
  var total = 0.0;
  for (var c = 0u; c < ${d}u; c++) { total += dy[start_y + c] * o[start_y + c]; }
  rows[2u * row] = lse[row];
  rows[2u * row + 1u] = total;`,
  )
  const kernels = gradientTensors(text).flatMap((target, role) => {
    const needsProduct = role !== 2
    const [own, other] = role === 0 ? ['i', 'j'] : ['j', 'i']
    const source = role === 0 ? tensors[1] : role === 1 ? tensors[0] : dy
    const projections = projectionTensors(text, gradProjections, needsProduct ? [0, 1, 2] : [0, 1])
    return rowElements(
      text,
      `attentionGrad naive ${role}`,
      { ...target, isHalf: attrs.half ?? false },
      { rows: role === 0 ? tq : tk, name: own },
      [
        reads('dy', { in: 0 }),
        reads('rows', { scratch: 0 }),
        ...scalarBindings(projections.bindings),
        ...masks,
      ],
      pairFunctions(text, needsProduct),
      `  var total = 0.0;
${eachHead(
  target.place,
  `  for (var ${other} = 0u; ${other} < ${role === 0 ? tk : tq}u; ${other}++) {
    let pair = score(b, h, i, j);
    if (pair.y != 0.0) {
      let query = (b * ${heads}u + h) * ${tq}u + i;
      let p = exp_of(pair.x - rows[2u * query]);
      let begin = ${start(source, other, d)};
      ${
        needsProduct
          ? `let ds = p * (product(b, h, i, j)${drop('i', 'j')} - rows[2u * query + 1u]) * SCALE;
      total += ds * ${elementAt(source.variable, 'begin + c', text.isHalf)};`
          : `total += p${drop('i', 'j')} * dy[begin + c];`
      }
    }
  }`,
)}
`,
      'total',
    )
  })
  return {
    dispatches: [...rows, ...kernels],
    scratch: [tensorType([Math.max(1, rowCount), 2])],
  }
}
