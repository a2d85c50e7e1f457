import { type TensorType, tensorType } from '../../util/shape.ts'
import { floatElement, wideElement } from '../half-bindings.ts'
import type { Lowering, OpCall } from '../op.ts'
import { adding, addingPairs, laneFunctions } from '../rows.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import { isInFours, type NormAttrs, type NormSizes } from './geometry.ts'
import type { GradOutputs, StoreChain } from './grad.ts'

/** Invocations of a workgroup; a power of two. */
const threads = 64

/** Named registers that an invocation keeps of one row. */
const maxUnits = 8

/** How many partial sums of the parameter gradients are made before a second dispatch adds them. */
const partialsOf = (rows: number) => (rows >= 16_384 ? 512 : 128)

/**
 * How a row is spread over lanes: `lanes` neighbouring invocations take `units` elements (or fours of them) each, so that neighbours
 * read neighbours; the other invocations of the workgroup take further rows at the same time.
 */
export function laneLayout(sizes: NormSizes) {
  const { size } = sizes
  const isWide = isInFours(sizes)
  const perRow = isWide ? size / 4 : size
  let lanes = 1
  while (lanes < threads && lanes < perRow) lanes *= 2
  return { isWide, perRow, lanes, units: ceilDiv(perRow, lanes), rowsAtOnce: threads / lanes }
}

/** Returns whether a row fits into the lanes' registers. */
export const fitsLanes = (sizes: NormSizes): boolean => laneLayout(sizes).units <= maxUnits

function pieces(sizes: NormSizes) {
  const layout = laneLayout(sizes)
  const { isWide, perRow, lanes, units } = layout
  const element = isWide ? ('vec4<f32>' as const) : ('f32' as const)
  const zero = isWide ? 'vec4<f32>(0.0)' : '0.0'
  const total = (value: string) => (isWide ? `dot(${value}, vec4<f32>(1.0))` : value)
  const product = (a: string, b: string) => (isWide ? `dot(${a}, ${b})` : `${a} * ${b}`)
  const each = (line: (unit: number) => string) =>
    Array.from({ length: units }, (_, unit) => `  ${line(unit)}`).join('\n')
  const isPartial = perRow % lanes !== 0
  /** Returns whether unit number `unit` of this lane lies in the row. */
  const inside = (unit: number) =>
    isPartial && unit === units - 1 ? `is_row && lane + ${unit * lanes}u < PER_ROW` : 'is_row'
  /** The channel of a unit, as index into weight and bias: element or four of them where span is 1. */
  const isPerElement = sizes.span === 1
  const unitsPerChannel = isWide ? sizes.span / 4 : sizes.span
  const channel = (unit: number) => {
    const own = `lane + ${unit * lanes}u`
    if (isPerElement)
      return sizes.groups === 1 ? own : `(row % ${sizes.groups}u) * PER_ROW + ${own}`
    return `(row % ${sizes.groups}u) * ${sizes.channelsPerRow}u + (${own}) / ${unitsPerChannel}u`
  }
  const parameterElement = isPerElement ? element : ('f32' as const)
  const elementOf = (type: TensorType) => (isWide ? wideElement : floatElement)(type)
  return {
    ...layout,
    element,
    elementOf,
    zero,
    total,
    product,
    each,
    inside,
    channel,
    parameterElement,
  }
}

/** y and stats: each row in registers, read once. */
export function lanesNorm(
  label: string,
  sizes: NormSizes,
  { inputs: [x], outputs: [y], attrs: { eps, isCentered } }: OpCall<NormAttrs>,
  parameters: { weight: boolean; bias: boolean },
): Lowering {
  const p = pieces(sizes)
  const groups = linearGroups(ceilDiv(sizes.rows, p.rowsAtOnce))
  const loads = p.each(
    (k) =>
      `var x${k} = ${p.zero}; if (${p.inside(k)}) { x${k} = x[first + lane + ${k * p.lanes}u]; }`,
  )
  const sumOf = (values: string[]) => values.join(' + ')
  const units = Array.from({ length: p.units }, (_, k) => k)
  const center = isCentered
    ? `  let mean = over_lanes0(thread, ${sumOf(units.map((k) => p.total(`x${k}`)))}) / f32(SIZE);
${p.each((k) => `if (${p.inside(k)}) { x${k} = x${k} - mean; }`)}`
    : '  let mean = 0.0;'
  const stores = p.each((k) => {
    const weight = parameters.weight ? ` * weight[${p.channel(k)}]` : ''
    const bias = parameters.bias ? ` + bias[${p.channel(k)}]` : ''
    return `if (${p.inside(k)}) { y[first + lane + ${k * p.lanes}u] = x${k} * scale${weight}${bias}; }`
  })
  const body = `// y = (x - mean) / sqrt(variance + EPS) * weight + bias; stats = (mean, 1 / sqrt(variance + EPS)).
// ${p.lanes} lanes to a row, ${p.rowsAtOnce} rows at once; a lane adds its own elements, then lanes are added as a binary tree.
${laneFunctions([adding], p.lanes)}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let lane = thread % ${p.lanes}u;
  let row = (group.y * ${groups[0]}u + group.x) * ${p.rowsAtOnce}u + thread / ${p.lanes}u;
  let is_row = row < ROWS;
  let first = row * PER_ROW;
${loads}
${center}
  let variance = over_lanes0(thread, ${sumOf(units.map((k) => p.product(`x${k}`, `x${k}`)))}) / f32(SIZE);
  let scale = 1.0 / sqrt(variance + EPS);
${stores}
  if (is_row && lane == 0u) { stats[row] = vec2<f32>(mean, scale); }
}
`
  return {
    dispatches: [
      dispatch({
        label,
        bindings: [
          reads('x', { in: 0 }, p.elementOf(x)),
          ...(parameters.weight ? [reads('weight', { in: 1 }, p.parameterElement)] : []),
          ...(parameters.bias ? [reads('bias', { in: 2 }, p.parameterElement)] : []),
          writes('y', { out: 0 }, p.elementOf(y)),
          writes('stats', { out: 1 }, 'vec2<f32>'),
        ],
        constants: {
          ROWS: sizes.rows,
          SIZE: sizes.size,
          PER_ROW: p.perRow,
          EPS: { f32: eps },
        },
        body,
        groups,
      }),
    ],
  }
}

/**
 * dx and, for parameters of one group with span 1, partial sums of their gradients in the same pass; a second dispatch adds those.
 *
 * `parameters` undefined: dx alone. Order: a lane adds its rows from the first to the last, the partial sums are added as
 * `sumPartials` says; all of it depends on the sizes alone.
 */
export function lanesNormGrad(
  label: string,
  sizes: NormSizes,
  { inputs: [dy, x], outputs: [dx], attrs: { isCentered } }: OpCall<NormAttrs>,
  hasWeight: boolean,
  chain: StoreChain,
  parameters: GradOutputs | undefined,
): Lowering {
  const p = pieces(sizes)
  const { rows } = sizes
  const batches = ceilDiv(rows, p.rowsAtOnce)
  const steps = parameters ? Math.max(1, ceilDiv(rows, partialsOf(rows))) : 1
  const groupCount = ceilDiv(batches, steps)
  const groups = linearGroups(groupCount)
  const wantsWeight = parameters?.weight !== undefined
  const wantsBias = parameters?.bias !== undefined
  const kinds = Number(wantsWeight) + Number(wantsBias)
  const units = Array.from({ length: p.units }, (_, k) => k)
  const body = `// dx = scale * (g - mean of g - normal * mean of g * normal), g = dy * weight.
// ${p.lanes} lanes to a row, ${p.rowsAtOnce} rows at once, ${steps} times in each workgroup; sums over lanes are binary trees.
${laneFunctions([addingPairs], p.lanes)}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let lane = thread % ${p.lanes}u;
  let slot = thread / ${p.lanes}u;
  let group_index = group.y * ${groups[0]}u + group.x;
${units.flatMap((k) => [...(wantsWeight ? [`  var dw${k} = ${p.zero};`] : []), ...(wantsBias ? [`  var db${k} = ${p.zero};`] : [])]).join('\n')}
  for (var step = 0u; step < ${steps}u; step++) {
    let row = (group_index * ${steps}u + step) * ${p.rowsAtOnce}u + slot;
    let is_row = row < ROWS;
    let first = row * PER_ROW;
    var s = vec2<f32>(0.0, 0.0);
    if (is_row) { s = stats[row]; }
${p.each((k) => {
  const own = `first + lane + ${k * p.lanes}u`
  const weight = hasWeight ? ` * weight[${p.channel(k)}]` : ''
  return `  var n${k} = ${p.zero}; var g${k} = ${p.zero};
    if (${p.inside(k)}) {
      n${k} = (x[${own}] - s.x) * s.y;
      let d = dy[${own}];
      g${k} = d${weight};
${wantsWeight ? `      dw${k} = dw${k} + d * n${k};\n` : ''}${wantsBias ? `      db${k} = db${k} + d;\n` : ''}    }`
})}
    let total = over_lanes0(thread, vec2<f32>(${units.map((k) => p.total(`g${k}`)).join(' + ')}, ${units.map((k) => p.product(`g${k}`, `n${k}`)).join(' + ')})) / f32(SIZE);
${p.each((k) => {
  const finish = p.isWide ? chain.wide(`v${k}`, `at${k}`, `c${k}`) : chain.scalar(`v${k}`, `at${k}`)
  return `  if (${p.inside(k)}) {
      let at${k} = first + lane + ${k * p.lanes}u;
      let v${k} = s.y * (g${k}${isCentered ? ' - total.x' : ''} - n${k} * total.y);
${finish.lines.map((line) => `      ${line}`).join('\n')}
      dx[at${k}] = ${finish.result};
    }`
})}
  }
${
  kinds === 0
    ? ''
    : `  let put = (group_index * ${p.rowsAtOnce}u + slot) * ${kinds}u * PER_ROW + lane;
  if (group_index < ${groupCount}u) {
${units
  .flatMap((k) =>
    [...(wantsWeight ? ['dw'] : []), ...(wantsBias ? ['db'] : [])].map((name, kind) => {
      const guard = p.inside(k).replace('is_row && ', '')
      const store = `partials[put + ${kind}u * PER_ROW + ${k * p.lanes}u] = ${name}${k};`
      return guard === 'is_row' ? `    ${store}` : `    if (${guard}) { ${store} }`
    }),
  )
  .join('\n')}
  }`
}
}
`
  const main = dispatch({
    label,
    bindings: [
      reads('dy', { in: 0 }, p.elementOf(dy)),
      reads('x', { in: 1 }, p.elementOf(x)),
      reads('stats', { in: 2 }, 'vec2<f32>'),
      ...(hasWeight ? [reads('weight', { in: 3 }, p.parameterElement)] : []),
      ...chain.bindings(p.isWide),
      writes('dx', { out: 0 }, p.elementOf(dx)),
      ...(kinds > 0 ? [writes('partials', { scratch: 0 }, p.element)] : []),
    ],
    constants: { ROWS: rows, SIZE: sizes.size, PER_ROW: p.perRow },
    body,
    groups,
  })
  if (!parameters || kinds === 0) return { dispatches: [main] }
  const partials = groupCount * p.rowsAtOnce
  return {
    dispatches: [main, sumPartials(label, sizes.size, partials, parameters)],
    scratch: [tensorType([partials, kinds, sizes.size])],
  }
}

const sumColumns = 16
const sumLanes = 16

/** dweight and dbias from their partial sums: 16 lanes a column take every 16th each, then a tree adds the lanes. */
function sumPartials(label: string, size: number, partials: number, outputs: GradOutputs) {
  const kinds = [
    ...(outputs.weight === undefined ? [] : [{ name: 'dweight', out: outputs.weight }]),
    ...(outputs.bias === undefined ? [] : [{ name: 'dbias', out: outputs.bias }]),
  ]
  const columns = kinds.length * size
  const groups = linearGroups(ceilDiv(columns, sumColumns))
  const store =
    kinds.length === 1
      ? `${kinds[0].name}[column] = sums[thread];`
      : `if (column < ${size}u) { ${kinds[0].name}[column] = sums[thread]; } else { ${kinds[1].name}[column - ${size}u] = sums[thread]; }`
  return dispatch({
    label: `${label} parameters`,
    bindings: [
      reads('partials', { scratch: 0 }),
      ...kinds.map(({ name, out }) => writes(name, { out })),
    ],
    body: `// Adds ${partials} partial sums of ${columns} columns: lane l takes l, l + ${sumLanes}, ..., then a binary tree over lanes.
var<workgroup> sums: array<f32, ${sumColumns * sumLanes}>;

@compute @workgroup_size(${sumColumns * sumLanes})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let column = (group.y * ${groups[0]}u + group.x) * ${sumColumns}u + thread % ${sumColumns}u;
  let lane = thread / ${sumColumns}u;
  var total = 0.0;
  if (column < ${columns}u) {
    for (var n = lane; n < ${partials}u; n += ${sumLanes}u) { total += partials[n * ${columns}u + column]; }
  }
  sums[thread] = total;
  workgroupBarrier();
  for (var half = ${sumLanes / 2}u; half > 0u; half /= 2u) {
    if (lane < half) { sums[thread] += sums[thread + half * ${sumColumns}u]; }
    workgroupBarrier();
  }
  if (lane == 0u && column < ${columns}u) {
    ${store}
  }
}
`,
    groups,
  })
}
