import type { TensorType } from '../../util/shape.ts'
import { tensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import type { Dispatch, Lowering } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, type ShaderBinding, writes } from '../shader.ts'
import { lowestScore } from './attention.ref.ts'
import {
  type AttentionAttrs,
  type AttentionSizes,
  projectionsOf,
  type RowPlace,
} from './geometry.ts'
import {
  type AttentionText,
  attentionText,
  eachHead,
  gradientTensors,
  locateHead,
  outputTensor,
  ownHead,
  projectionTensors,
} from './text.ts'

// One invocation owns one row (a query, or in backward a key) in named registers and walks over the other side, of which the
// workgroup stages a tile at a time. No score is ever stored: forward keeps the output and the logarithm of each row's sum of
// exponentials, backward makes the probabilities again from it.
// source: Dao et al., FlashAttention, arXiv 2205.14135; the online softmax of Milakov and Gimelshein, arXiv 1805.02867.

/** The longest row that registers hold. */
export const maxRow = 128

/** Storage buffers a stage may bind by WebGPU's default limits. */
export const maxBindings = 8

export const lanes = ['x', 'y', 'z', 'w']
export const range = (count: number) => Array.from({ length: count }, (_, i) => i)

/** Invocations of a workgroup for `rows` rows: a power of two up to 64. */
function threadsFor(rows: number): number {
  let threads = 8
  while (threads < 64 && threads < rows) threads *= 2
  return threads
}

/** Rows of the other side staged at once, a multiple of 4: two tiles take 8 KiB at most. */
const stagedRows = (units: number): number => (units <= 8 ? 32 : units <= 16 ? 16 : 8)

/** Where a workgroup's rows of a tensor are: `tile`, own head, `b` of a flat workgroup index that has `tiles` tiles a head. */
const locate = (sizes: AttentionSizes, place: RowPlace, index: string, tiles: number) =>
  `let tile = ${index} % ${tiles}u;
  ${locateHead(place, sizes, `${index} / ${tiles}u`)}
  let b = ${index} / ${(tiles * sizes.heads) / place.group}u;`

/** Copies rows `begin`.. of the other side into workgroup memory; rows past `end` become zeros. */
const stage = (
  text: AttentionText,
  threads: number,
  end: number,
  copies: readonly { tile: string; variable: string; start: string }[],
) => `for (var u = thread; u < ${stagedRows(text.units) * text.units}u; u += ${threads}u) {
      let row = begin + u / ${text.units}u;
      let unit = u % ${text.units}u;
      if (row < ${end}u) {
${copies.map(({ tile, variable, start }) => `        ${tile}[u] = load_${variable}(${start}, unit);`).join('\n')}
      } else {
${copies.map(({ tile }) => `        ${tile}[u] = vec4<f32>(0.0);`).join('\n')}
      }
    }`

const dotOf = (text: AttentionText, own: string, tile: string, row: string) =>
  range(text.units)
    .map((c) => `dot(${own}${c}, ${tile}[${row} + ${c}u])`)
    .join(' + ')

/** o and lse, one dispatch. */
export function flashForward(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): Lowering {
  const { batch, heads, tq, tk, d } = sizes
  const text = attentionText(sizes, attrs, mask)
  const { units } = text
  const threads = threadsFor(tq)
  const tiles = ceilDiv(tq, threads)
  const groups = linearGroups(tiles * heads * batch)
  const staged = stagedRows(units)
  const q = projectionTensors(text, 0)
  const [queries, keys, values] = q.tensors
  const out = outputTensor(text, 'o')
  const body = `// o = softmax(scale * q k^T + mask) v and each row's log of the sum of exponentials; one invocation makes one row.
// Keys are taken in order, 4 at a time; a tile of ${staged} is staged in workgroup memory.
${q.variables.map(text.loader).join('\n')}
${text.functions}
var<workgroup> tile_k: array<vec4<f32>, ${staged * units}>;
var<workgroup> tile_v: array<vec4<f32>, ${staged * units}>;

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = group.y * ${groups[0]}u + group.x;
  if (index >= ${tiles * heads * batch}u) { return; }
  ${locate(sizes, out.place, 'index', tiles)}
  let i = tile * ${threads}u + thread;
  let is_row = i < ${tq}u;
  let own = ${text.start(queries, `min(i, ${tq - 1}u)`)};
${range(units)
  .map((c) => `  let q${c} = load_${queries.variable}(own, ${c}u); var o${c} = vec4<f32>(0.0);`)
  .join('\n')}
  var top = LOWEST;
  var sum = 0.0;
  // Keys that this row sees, and that any row of the workgroup sees.
  let own_end = select(0u, ${attrs.isCausal ? `min(${tk}u, i + 1u)` : `${tk}u`}, is_row);
  let end = ${attrs.isCausal ? `min(${tk}u, (tile + 1u) * ${threads}u)` : `${tk}u`};
  for (var begin = 0u; begin < end; begin += ${staged}u) {
    ${stage(text, threads, tk, [
      { tile: 'tile_k', variable: keys.variable, start: text.start(keys, 'row') },
      { tile: 'tile_v', variable: values.variable, start: text.start(values, 'row') },
    ])}
    workgroupBarrier();
    let count = min(${staged}u, max(own_end, begin) - begin);
    for (var j = 0u; j < count; j += 4u) {
      let at = j * ${units}u;
${lanes
  .map((lane, n) => {
    const key = `${attrs.mask ? `min(begin + j + ${n}u, ${tk - 1}u)` : `begin + j + ${n}u`}`
    return `      let pair_${lane} = seen(b, h, i, ${key}, (${dotOf(text, 'q', 'tile_k', `at + ${n * units}u`)}) * SCALE);
      let is_${lane} = pair_${lane}.y != 0.0 && j + ${n}u < count;
      let s_${lane} = select(LOWEST, pair_${lane}.x, is_${lane});`
  })
  .join('\n')}
      let next = max(top, max(max(s_x, s_y), max(s_z, s_w)));
      let shrink = exp_of(top - next);
      top = next;
      var p = select(vec4<f32>(0.0), exp4_of(vec4<f32>(s_x, s_y, s_z, s_w) - next), vec4<bool>(is_x, is_y, is_z, is_w));
      sum = sum * shrink + ((p.x + p.y) + (p.z + p.w));
${attrs.dropout ? '      p = p * drop_factors(b, h, i, (begin + j) / 4u);' : ''}
${range(units)
  .map(
    (c) =>
      `      o${c} = o${c} * shrink + p.x * tile_v[at + ${c}u] + p.y * tile_v[at + ${units + c}u] + p.z * tile_v[at + ${2 * units + c}u] + p.w * tile_v[at + ${3 * units + c}u];`,
  )
  .join('\n')}
    }
    workgroupBarrier();
  }
  if (is_row) {
    let is_empty = sum == 0.0;
    let factor = select(1.0 / sum, 0.0, is_empty);
    let put = ${text.start(out, 'i')};
${range(units)
  .map((c) => `    ${text.store('o', 'put', c, `o${c} * factor`)}`)
  .join('\n')}
    lse[(b * ${heads}u + h) * ${tq}u + i] = select(top + log_of(sum), 0.0, is_empty);
  }
}
`
  return {
    dispatches: [
      dispatch({
        label: `attention ${batch}x${heads}x${tq}x${tk}x${d}`,
        bindings: [
          ...q.bindings,
          ...text.maskBindings(projectionsOf(attrs.layout)),
          writes('o', { out: 0 }, text.outputElement),
          writes('lse', { out: 1 }),
        ],
        constants: { SCALE: { f32: attrs.scale }, LOWEST: { f32: lowestScore } },
        body,
        groups,
      }),
    ],
  }
}

/** Inputs of the gradient op: dy, o, lse, then the projections, then the mask. */
export const gradProjections = 3

/** (lse, sum of dy * o) of each row: what backward needs of the softmax besides the scores. */
export function rowsKernel(text: AttentionText): Dispatch[] {
  const { batch, heads, tq } = text.sizes
  const dy = outputTensor(text, 'dy')
  const o = outputTensor(text, 'o')
  return eachElement({
    label: `attentionGrad rows ${batch}x${heads}x${tq}`,
    count: batch * heads * tq,
    bindings: [
      reads('dy', { in: 0 }, text.element),
      reads('o', { in: 1 }, text.outputElement),
      reads('lse', { in: 2 }),
      writes('rows', { scratch: 0 }, 'vec2<f32>'),
    ],
    functions: `${text.loader('dy')}\n${text.loader('o')}`,
    main: [
      `let row = i % ${tq}u;`,
      `let h = i / ${tq}u % ${heads}u;`,
      `let b = i / ${tq * heads}u;`,
      `let start = ${text.start(dy, 'row')};`,
      `let start_o = ${text.start(o, 'row')};`,
      'var total = 0.0;',
      `for (var unit = 0u; unit < ${text.units}u; unit++) {`,
      '  total += dot(load_dy(start, unit), load_o(start_o, unit));',
      '}',
      'rows[i] = vec2<f32>(lse[i], total);',
    ],
  })
}

type Role = 0 | 1 | 2
const roleNames = ['queries', 'keys', 'values']

/** The function that makes one workgroup's rows of the gradient by queries (0), keys (1) or values (2). */
function roleFunction(text: AttentionText, role: Role, threads: number): string {
  const { sizes, attrs, units } = text
  const { heads, tq, tk } = sizes
  const { tensors } = projectionTensors(text, 0)
  const dy = outputTensor(text, 'dy')
  const target = gradientTensors(text)[role]
  const isQueries = role === 0
  const rows = isQueries ? tq : tk
  const others = isQueries ? tk : tq
  const staged = stagedRows(units)
  const tiles = ceilDiv(rows, threads)
  // The own row: x makes scores with tile_a, y (not for values) the probabilities' gradients with tile_b.
  const own = isQueries
    ? { x: tensors[0], y: dy, a: tensors[1], b: tensors[2] }
    : { x: tensors[1], y: tensors[2], a: tensors[0], b: dy }
  const needsY = role !== 2
  const [i, j] = isQueries ? ['own', 'other'] : ['other', 'own']
  const firstOther =
    !isQueries && attrs.isCausal ? `(tile * ${threads}u) / ${staged}u * ${staged}u` : '0u'
  const endOther =
    isQueries && attrs.isCausal ? `min(${others}u, (tile + 1u) * ${threads}u)` : `${others}u`
  const ownEnd = isQueries && attrs.isCausal ? `min(${others}u, own + 1u)` : `${others}u`
  const firstInTile = !isQueries && attrs.isCausal ? 'max(own, begin) - begin' : '0u'
  const dropped = attrs.dropout ? ` * drop_factor(b, h, ${i}, ${j})` : ''
  const inner = `let other = begin + n;
        let at = n * ${units}u;
        let pair = seen(b, h, ${i}, ${j}, (${dotOf(text, 'x', 'tile_a', 'at')}) * SCALE);
        ${isQueries ? '' : 'let row = tile_rows[n];\n        '}let p = select(0.0, exp_of(pair.x - row.x), pair.y != 0.0);
${
  needsY
    ? `        let ds = p * ((${dotOf(text, 'y', 'tile_b', 'at')})${dropped} - row.y);
${range(units)
  .map((c) => `        g${c} = g${c} + ds * tile_a[at + ${c}u];`)
  .join('\n')}`
    : `        let weight = p${dropped};
${range(units)
  .map((c) => `        g${c} = g${c} + weight * tile_b[at + ${c}u];`)
  .join('\n')}`
}`
  return `fn grad_${roleNames[role]}(index: u32, thread: u32) {
  ${locate(sizes, target.place, 'index', tiles)}
  let own = tile * ${threads}u + thread;
  let is_row = own < ${rows}u;
  let inside = min(own, ${rows - 1}u);
  let x_start = ${text.start(own.x, 'inside', ownHead(target.place))};
${range(units)
  .map((c) => `  let x${c} = load_${own.x.variable}(x_start, ${c}u); var g${c} = vec4<f32>(0.0);`)
  .join('\n')}
${
  needsY
    ? `  let y_start = ${text.start(own.y, 'inside', ownHead(target.place))};
${range(units)
  .map((c) => `  let y${c} = load_${own.y.variable}(y_start, ${c}u);`)
  .join('\n')}`
    : ''
}
  ${isQueries ? `let row = rows[(b * ${heads}u + h) * ${tq}u + inside];` : ''}
  let own_end = select(0u, ${ownEnd}, is_row);
  let end = ${endOther};
${eachHead(
  target.place,
  `  for (var begin = ${firstOther}; begin < end; begin += ${staged}u) {
    ${stage(text, threads, others, [
      { tile: 'tile_a', variable: own.a.variable, start: text.start(own.a, 'row') },
      { tile: 'tile_b', variable: own.b.variable, start: text.start(own.b, 'row') },
    ])}
${
  isQueries
    ? ''
    : `    for (var u = thread; u < ${staged}u; u += ${threads}u) {
      if (begin + u < ${others}u) { tile_rows[u] = rows[(b * ${heads}u + h) * ${tq}u + begin + u]; }
    }
`
}    workgroupBarrier();
    let count = min(${staged}u, max(own_end, begin) - begin);
    for (var n = ${firstInTile}; n < count; n++) {
        ${inner}
    }
    workgroupBarrier();
  }`,
)}
  if (is_row) {
    let put = ${text.start(target, 'own', ownHead(target.place))};
${range(units)
  .map((c) => `    ${text.store(target.variable, 'put', c, needsY ? `g${c} * SCALE` : `g${c}`)}`)
  .join('\n')}
  }
}
`
}

/** One dispatch that makes the gradients of `roles`, each workgroup those of one. */
function rolesKernel(text: AttentionText, roles: readonly Role[]): Dispatch {
  const { sizes, attrs, units } = text
  const { batch, heads, keyHeads, tq, tk, d } = sizes
  const threads = threadsFor(Math.max(tq, tk))
  const wanted = [...new Set(roles.flatMap((role) => (role === 2 ? [0, 1] : [0, 1, 2])))].sort()
  const projections = projectionTensors(text, gradProjections, wanted)
  const targets = gradientTensors(text)
  const outputs = new Map(roles.map((role) => [targets[role].variable, targets[role].operand]))
  const staged = stagedRows(units)
  const counts = roles.map(
    (role) => ceilDiv(role === 0 ? tq : tk, threads) * (role === 0 ? heads : keyHeads) * batch,
  )
  const groups = linearGroups(counts.reduce((sum, count) => sum + count, 0))
  let before = 0
  const calls = roles.map((role, n) => {
    const from = before
    before += counts[n]
    return `if (index < ${before}u) { grad_${roleNames[role]}(index - ${from}u, thread); }`
  })
  const bindings: ShaderBinding[] = [
    reads('dy', { in: 0 }, text.element),
    reads('rows', { scratch: 0 }, 'vec2<f32>'),
    ...projections.bindings,
    ...text.maskBindings(gradProjections + projectionsOf(attrs.layout)),
    ...[...outputs].map(([name, operand]) => writes(name, operand, text.gradientElement)),
  ]
  return dispatch({
    label: `attentionGrad ${roles.map((role) => roleNames[role]).join(', ')} ${batch}x${heads}x${tq}x${tk}x${d}`,
    bindings,
    constants: { SCALE: { f32: attrs.scale } },
    body: `// Gradients by ${roles.map((role) => roleNames[role]).join(', ')}: p = exp(s - lse), ds = p * (dy v - rows.y); one invocation makes one row.
// The other side is taken in order; a tile of ${staged} rows is staged in workgroup memory.
${[...projections.variables, 'dy'].map(text.loader).join('\n')}
${text.functions}
var<workgroup> tile_a: array<vec4<f32>, ${staged * units}>;
var<workgroup> tile_b: array<vec4<f32>, ${staged * units}>;
var<workgroup> tile_rows: array<vec2<f32>, ${staged}>;

${roles.map((role) => roleFunction(text, role, threads)).join('\n')}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = group.y * ${groups[0]}u + group.x;
  ${calls.join(' else ')}
}
`,
    groups,
  })
}

/** Gradients by queries, keys and values: the rows' sums, then one dispatch, or one each where bindings do not suffice. */
export function flashBackward(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): Lowering {
  const { batch, heads, tq } = sizes
  const text = attentionText(sizes, attrs, mask)
  const roles: Role[] = [0, 1, 2]
  const together = rolesKernel(text, roles)
  return {
    dispatches: [
      ...rowsKernel(text),
      ...(together.bindings.length <= maxBindings
        ? [together]
        : roles.map((role) => rolesKernel(text, [role]))),
    ],
    scratch: [tensorType([batch, heads, tq, 2])],
  }
}
