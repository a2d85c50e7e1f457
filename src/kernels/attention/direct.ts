import type { TensorType } from '../../util/shape.ts'
import { tensorType } from '../../util/shape.ts'
import type { Dispatch, Lowering } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, type ShaderBinding, writes } from '../shader.ts'
import { lowestScore } from './attention.ref.ts'
import { gradProjections, lanes, maxBindings, range, rowsKernel } from './flash.ts'
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
  type RowTensor,
} from './text.ts'

// As flash.ts, but an invocation owns several rows, so that what it loads serves all of them, and reads the other side straight from
// storage: on an adapter that computes on the CPU a load costs as much as 20 multiplications, and a barrier stops every invocation.

/** Invocations of a workgroup. */
const threads = 16

/** Rows that an invocation owns: as many as keep its vectors to some sixty. */
const rowsFor = (units: number): number => (units <= 4 ? 4 : units <= 8 ? 2 : 1)

/** The same in backward, where a row has two or three vectors more and the text of two sides compiles for as long as it is. */
const gradRowsFor = (units: number): number => (units <= 8 ? 2 : 1)

/** Returns whether the busiest dispatch stays within the bindings that every device has: gradients by keys and values from three tensors. */
export const fitsDirect = (attrs: AttentionAttrs): boolean =>
  projectionsOf(attrs.layout) === 1 || attrs.mask === null || attrs.dropout === null

const blocksOf = (rows: number, perInvocation: number) => ceilDiv(rows, perInvocation)

const join = (lines: readonly string[]) => lines.join('\n')

const dotOf = (units: number, own: string, other: string) =>
  range(units)
    .map((c) => `dot(${own}_${c}, ${other}_${c})`)
    .join(' + ')

/** Loads row `t` of a tensor into `<name>_0`, `<name>_1`, ... */
const load = (text: AttentionText, name: string, tensor: RowTensor, t: string, h?: string) =>
  join([
    `let ${name}_start = ${text.start(tensor, t, h)};`,
    ...range(text.units).map(
      (c) => `let ${name}_${c} = load_${tensor.variable}(${name}_start, ${c}u);`,
    ),
  ])

const zeros = (text: AttentionText, name: string) =>
  join(range(text.units).map((c) => `var ${name}_${c} = vec4<f32>(0.0);`))

/** Where a flat index of blocks of a tensor's rows is: `first` row, own head, `b`. */
const locate = (sizes: AttentionSizes, place: RowPlace, blocks: number, rows: number) =>
  `let first = index % ${blocks}u * ${rows}u;
  ${locateHead(place, sizes, `index / ${blocks}u`)}
  let b = index / ${(blocks * sizes.heads) / place.group}u;`

/** The row of the r-th register set, which for sets past the end is the last row again. */
const ownRows = (count: number, rows: number) =>
  join(range(count).map((r) => `let own${r} = min(first + ${r}u, ${rows - 1}u);`))

/** Stores row by row what lies inside. */
const storeRows = (
  text: AttentionText,
  count: number,
  rows: number,
  targets: readonly { tensor: RowTensor; value: (r: number, c: number) => string }[],
) =>
  join(
    range(count).map(
      (r) => `  if (first + ${r}u < ${rows}u) {
${join(
  targets.map(
    (
      { tensor, value },
      n,
    ) => `    let put${n} = ${text.start(tensor, `own${r}`, ownHead(tensor.place))};
${join(range(text.units).map((c) => `    ${text.store(tensor.variable, `put${n}`, c, value(r, c))}`))}`,
  ),
)}
  }`,
    ),
  )

const begin = (groupsX: number, count: number) => `@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = (group.y * ${groupsX}u + group.x) * ${threads}u + thread;
  if (index >= ${count}u) { return; }`

/** o and lse, one dispatch. */
export function directForward(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): Lowering {
  const { batch, heads, tq, tk, d } = sizes
  const text = attentionText(sizes, attrs, mask)
  const { units } = text
  const count = rowsFor(units)
  const blocks = blocksOf(tq, count)
  const invocations = blocks * heads * batch
  const groups = linearGroups(ceilDiv(invocations, threads))
  const q = projectionTensors(text, 0)
  const [queries, keys, values] = q.tensors
  const out = outputTensor(text, 'o')
  const end = attrs.isCausal ? `min(${tk}u, first + ${count}u)` : `${tk}u`
  const scores = (lane: string, n: number) => `    let key_${lane} = min(j + ${n}u, ${tk - 1}u);
    ${load(text, `k${n}`, keys, `key_${lane}`)}
${join(
  range(count).map(
    (
      r,
    ) => `    let pair${r}_${lane} = seen(b, h, own${r}, key_${lane}, (${dotOf(units, `q${r}`, `k${n}`)}) * SCALE);
    let is${r}_${lane} = pair${r}_${lane}.y != 0.0 && j + ${n}u < ${attrs.isCausal ? `min(${tk}u, own${r} + 1u)` : `${tk}u`};
    let s${r}_${lane} = select(LOWEST, pair${r}_${lane}.x, is${r}_${lane});`,
  ),
)}`
  const softmax = (r: number) => {
    const all = (name: string) => lanes.map((lane) => `${name}${r}_${lane}`)
    const [x, y, z, w] = all('s')
    return `    let next${r} = max(top${r}, max(max(${x}, ${y}), max(${z}, ${w})));
    let shrink${r} = exp_of(top${r} - next${r});
    top${r} = next${r};
    var p${r} = select(vec4<f32>(0.0), exp4_of(vec4<f32>(${all('s').join(', ')}) - next${r}), vec4<bool>(${all('is').join(', ')}));
    sum${r} = sum${r} * shrink${r} + ((p${r}.x + p${r}.y) + (p${r}.z + p${r}.w));
${attrs.dropout ? `    p${r} = p${r} * drop_factors(b, h, own${r}, j / 4u);\n` : ''}${join(range(units).map((c) => `    o${r}_${c} = o${r}_${c} * shrink${r};`))}`
  }
  const weigh = (lane: string, n: number) => `    ${load(text, `v${n}`, values, `key_${lane}`)}
${join(range(count).flatMap((r) => range(units).map((c) => `    o${r}_${c} = o${r}_${c} + p${r}.${lane} * v${n}_${c};`)))}`
  const body = `// o = softmax(scale * q k^T + mask) v and each row's log of the sum of exponentials; one invocation makes ${count} rows.
// Keys are taken in order, 4 at a time.
${join(q.variables.map(text.loader))}
${text.functions}
${begin(groups[0], invocations)}
  ${locate(sizes, out.place, blocks, count)}
  ${ownRows(count, tq)}
${join(
  range(count).map(
    (r) => `  ${load(text, `q${r}`, queries, `own${r}`)}
  ${zeros(text, `o${r}`)}
  var top${r} = LOWEST;
  var sum${r} = 0.0;`,
  ),
)}
  for (var j = 0u; j < ${end}; j += 4u) {
${join(lanes.map(scores))}
${join(range(count).map(softmax))}
${join(lanes.map(weigh))}
  }
${join(range(count).map((r) => `  let factor${r} = select(1.0 / sum${r}, 0.0, sum${r} == 0.0);`))}
${storeRows(text, count, tq, [{ tensor: out, value: (r, c) => `o${r}_${c} * factor${r}` }])}
${join(
  range(count).map(
    (r) =>
      `  if (first + ${r}u < ${tq}u) { lse[(b * ${heads}u + h) * ${tq}u + own${r}] = select(top${r} + log_of(sum${r}), 0.0, sum${r} == 0.0); }`,
  ),
)}
}
`
  return {
    dispatches: [
      dispatch({
        label: `attention ${batch}x${heads}x${tq}x${tk}x${d} direct`,
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

type Side = 'queries' | 'keys'

/** The function that makes a block of rows of the gradient by queries, or of those by keys and values. */
function sideFunction(text: AttentionText, side: Side): string {
  const { attrs, units } = text
  const { heads, tq, tk } = text.sizes
  const { tensors } = projectionTensors(text, gradProjections)
  const dy = outputTensor(text, 'dy')
  const targets = gradientTensors(text)
  const count = gradRowsFor(units)
  const isQueries = side === 'queries'
  const { place } = targets[isQueries ? 0 : 1]
  const rows = isQueries ? tq : tk
  // Own rows x make scores with a, own rows y the probabilities' gradients with b.
  const own = isQueries
    ? { x: tensors[0], y: dy, a: tensors[1], b: tensors[2] }
    : { x: tensors[1], y: tensors[2], a: tensors[0], b: dy }
  const rowAt = (i: string) => `rows[(b * ${heads}u + h) * ${tq}u + ${i}]`
  const from = !isQueries && attrs.isCausal ? 'first' : '0u'
  const others = isQueries
    ? attrs.isCausal
      ? `min(${tk}u, first + ${count}u)`
      : `${tk}u`
    : `${tq}u`
  const pair = (r: number) => {
    const [i, j] = isQueries ? [`own${r}`, 'other'] : ['other', `own${r}`]
    const row = isQueries ? `row${r}` : 'row'
    const dropped = attrs.dropout ? ` * drop_factor(b, h, ${i}, ${j})` : ''
    const add = (to: string, weight: string, from: string) =>
      join(
        range(units).map(
          (c) => `    ${to}${r}_${c} = ${to}${r}_${c} + ${weight}${r} * ${from}_${c};`,
        ),
      )
    return `    let pair${r} = seen(b, h, ${i}, ${j}, (${dotOf(units, `x${r}`, 'a')}) * SCALE);
    let p${r} = select(0.0, exp_of(pair${r}.x - ${row}.x), pair${r}.y != 0.0${attrs.isCausal ? ` && ${j} <= ${i}` : ''});
    let ds${r} = p${r} * ((${dotOf(units, `y${r}`, 'b')})${dropped} - ${row}.y);
${add('g', 'ds', 'a')}${isQueries ? '' : `\n    let weight${r} = p${r}${dropped};\n${add('w', 'weight', 'b')}`}`
  }
  return `fn grad_${side}(index: u32) {
  ${locate(text.sizes, place, blocksOf(rows, count), count)}
  ${ownRows(count, rows)}
${join(
  range(count).map(
    (r) => `  ${load(text, `x${r}`, own.x, `own${r}`, ownHead(place))}
  ${load(text, `y${r}`, own.y, `own${r}`, ownHead(place))}
  ${zeros(text, `g${r}`)}
  ${isQueries ? `let row${r} = ${rowAt(`own${r}`)};` : zeros(text, `w${r}`)}`,
  ),
)}
${eachHead(
  place,
  `  for (var other = ${from}; other < ${others}; other++) {
    ${load(text, 'a', own.a, 'other')}
    ${load(text, 'b', own.b, 'other')}
${isQueries ? '' : `    let row = ${rowAt('other')};\n`}${join(range(count).map(pair))}
  }`,
)}
${storeRows(text, count, rows, [
  { tensor: targets[isQueries ? 0 : 1], value: (r, c) => `g${r}_${c} * SCALE` },
  ...(isQueries ? [] : [{ tensor: targets[2], value: (r: number, c: number) => `w${r}_${c}` }]),
])}
}
`
}

function sidesKernel(text: AttentionText, sides: readonly Side[]): Dispatch {
  const { attrs, units } = text
  const { batch, heads, keyHeads, tq, tk, d } = text.sizes
  const projections = projectionTensors(text, gradProjections)
  const targets = gradientTensors(text)
  const written = sides.flatMap((side) => (side === 'queries' ? [targets[0]] : targets.slice(1)))
  const outputs = new Map(written.map(({ variable, operand }) => [variable, operand]))
  const counts = sides.map((side) => {
    const [rows, own] = side === 'queries' ? [tq, heads] : [tk, keyHeads]
    return blocksOf(rows, gradRowsFor(units)) * own * batch
  })
  const total = counts.reduce((sum, some) => sum + some, 0)
  const groups = linearGroups(ceilDiv(total, threads))
  const bindings: ShaderBinding[] = [
    reads('dy', { in: 0 }, text.element),
    reads('rows', { scratch: 0 }, 'vec2<f32>'),
    ...projections.bindings,
    ...text.maskBindings(gradProjections + projectionsOf(attrs.layout)),
    ...[...outputs].map(([name, operand]) => writes(name, operand, text.gradientElement)),
  ]
  const calls = sides.map((side, n) =>
    n === sides.length - 1
      ? `grad_${side}(index - ${total - counts[n]}u);`
      : `if (index < ${counts[n]}u) { grad_${side}(index); return; }`,
  )
  return dispatch({
    label: `attentionGrad ${sides.join(', ')} ${batch}x${heads}x${tq}x${tk}x${d} direct`,
    bindings,
    constants: { SCALE: { f32: attrs.scale } },
    body: `// Gradients by queries, or by keys and values: p = exp(s - lse), ds = p * (dy v - rows.y); one invocation makes ${gradRowsFor(units)} rows.
// The other side is taken in order.
${join([...projections.variables, 'dy'].map(text.loader))}
${text.functions}
${join(sides.map((side) => sideFunction(text, side)))}
${begin(groups[0], total)}
  ${calls.join('\n  ')}
}
`,
    groups,
  })
}

/** Gradients by queries, keys and values: the rows' sums, then one dispatch, or two where bindings do not suffice. */
export function directBackward(
  sizes: AttentionSizes,
  attrs: AttentionAttrs,
  mask: TensorType | undefined,
): Lowering {
  const { batch, heads, tq } = sizes
  const text = attentionText(sizes, attrs, mask)
  const together = sidesKernel(text, ['queries', 'keys'])
  return {
    dispatches: [
      ...rowsKernel(text),
      ...(together.bindings.length <= maxBindings
        ? [together]
        : [sidesKernel(text, ['queries']), sidesKernel(text, ['keys'])]),
    ],
    scratch: [tensorType([batch, heads, tq, 2])],
  }
}
