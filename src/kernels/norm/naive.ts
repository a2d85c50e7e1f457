import { floatElement, oneAfterTheOther } from '../half-bindings.ts'
import type { Dispatch, OpCall, Operand } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import type { NormAttrs, NormSizes } from './geometry.ts'
import type { GradOutputs, StoreChain } from './grad.ts'

const threads = 64

/** The WGSL line that names this invocation `i`, and ends it past `count`. */
const invocation = (count: number, groupsX: number) => `
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * ${groupsX}u + group.x) * ${threads}u + lane;
  if (i >= ${count}u) { return; }`

const constantsOf = ({ size, groups, span, channelsPerRow }: NormSizes) => ({
  SIZE: size,
  GROUPS: groups,
  SPAN: span,
  PER_ROW: channelsPerRow,
})

/** One invocation a row, three loops: mean, variance, store. */
export function naiveNorm(
  label: string,
  sizes: NormSizes,
  { inputs: [x], outputs: [y], attrs: { eps, isCentered, half } }: OpCall<NormAttrs>,
  parameters: { weight: boolean; bias: boolean },
): Dispatch {
  const normal = `(x[first + e] - mean) * scale${parameters.weight ? ' * weight[channel]' : ''}${parameters.bias ? ' + bias[channel]' : ''}`
  const store = half
    ? `let value = ${normal};
    ${oneAfterTheOther('y', '(first + e)', 'value')}`
    : `y[first + e] = ${normal};`
  const groups = linearGroups(ceilDiv(sizes.rows, threads))
  const mean = isCentered
    ? `for (var e = 0u; e < SIZE; e++) { mean += x[first + e]; }
  mean = mean / f32(SIZE);`
    : ''
  return dispatch({
    label,
    bindings: [
      reads('x', { in: 0 }, floatElement(x)),
      ...(parameters.weight ? [reads('weight', { in: 1 })] : []),
      ...(parameters.bias ? [reads('bias', { in: 2 })] : []),
      writes('y', { out: 0 }, floatElement(y)),
      writes('stats', { out: 1 }, 'vec2<f32>'),
    ],
    constants: { ...constantsOf(sizes), EPS: { f32: eps } },
    body: `// y = (x - mean) / sqrt(variance + EPS) * weight + bias, one invocation a row; additions in order.
${invocation(sizes.rows, groups[0])}
  let first = i * SIZE;
  var mean = 0.0;
  ${mean}
  var variance = 0.0;
  for (var e = 0u; e < SIZE; e++) {
    let off = x[first + e] - mean;
    variance += off * off;
  }
  let scale = 1.0 / sqrt(variance / f32(SIZE) + EPS);
  stats[i] = vec2<f32>(mean, scale);${half ? '\n  var held = 0.0;' : ''}
  for (var e = 0u; e < SIZE; e++) {
    let channel = (i % GROUPS) * PER_ROW + e / SPAN;
    ${store}
  }
}
`,
    groups,
  })
}

/** dx, one invocation a row, two loops. */
export function naiveNormGradInput(
  label: string,
  sizes: NormSizes,
  { inputs: [dy, x], outputs: [dx], attrs: { isCentered, half } }: OpCall<NormAttrs>,
  hasWeight: boolean,
  chain: StoreChain,
): Dispatch {
  const groups = linearGroups(ceilDiv(sizes.rows, threads))
  const finish = chain.scalar('value', 'at')
  return dispatch({
    label,
    bindings: [
      reads('dy', { in: 0 }, floatElement(dy)),
      reads('x', { in: 1 }, floatElement(x)),
      reads('stats', { in: 2 }, 'vec2<f32>'),
      ...(hasWeight ? [reads('weight', { in: 3 })] : []),
      ...chain.bindings(false),
      writes('dx', { out: 0 }, floatElement(dx)),
    ],
    constants: constantsOf(sizes),
    body: `// dx = scale * (g - mean of g - normal * mean of g * normal), g = dy * weight; one invocation a row.

fn weight_at(row: u32, e: u32) -> f32 {
  return ${hasWeight ? 'weight[(row % GROUPS) * PER_ROW + e / SPAN]' : '1.0'};
}
${invocation(sizes.rows, groups[0])}
  let first = i * SIZE;
  let s = stats[i];
  var sum = 0.0;
  var products = 0.0;
  for (var e = 0u; e < SIZE; e++) {
    let g = dy[first + e] * weight_at(i, e);
    sum += g;
    products += g * ((x[first + e] - s.x) * s.y);
  }
  let mean = ${isCentered ? 'sum / f32(SIZE)' : '0.0'};
  let slope = products / f32(SIZE);${half ? '\n  var held = 0.0;' : ''}
  for (var e = 0u; e < SIZE; e++) {
    let at = first + e;
    let normal = (x[at] - s.x) * s.y;
    let value = s.y * (dy[at] * weight_at(i, e) - mean - normal * slope);
${finish.lines.map((line) => `    ${line}`).join('\n')}
    ${half ? oneAfterTheOther('dx', 'at', finish.result) : `dx[at] = ${finish.result};`}
  }
}
`,
    groups,
  })
}

/** dweight and dbias: one invocation a channel, or one workgroup with a tree over its lanes. */
export function channelGradients(
  label: string,
  sizes: NormSizes,
  { inputs: [dy, x] }: OpCall<NormAttrs>,
  outputs: GradOutputs,
  isTree: boolean,
): Dispatch {
  const { channels, rows, groups: rowGroups } = sizes
  const groups = linearGroups(isTree ? channels : ceilDiv(channels, threads))
  const output = (index: number): Operand => ({ out: index })
  const stores = [
    ...(outputs.weight === undefined ? [] : ['dweight[channel] = total.x;']),
    ...(outputs.bias === undefined ? [] : ['dbias[channel] = total.y;']),
  ].join(' ')
  const [from, step] = isTree ? ['lane', `${threads}u`] : ['0u', '1u']
  const term = `let n = e / SPAN;
    let at = (n * CHANNELS + channel) * SPAN + e % SPAN;
    let row = n * GROUPS + channel / PER_ROW;
    let g = dy[at];
    total += vec2<f32>(g * ((x[at] - stats[2u * row]) * stats[2u * row + 1u]), g);`
  const start = isTree
    ? `var<workgroup> partial: array<vec2<f32>, ${threads}>;

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let channel = group.y * ${groups[0]}u + group.x;
  if (channel >= CHANNELS) { return; }`
    : `${invocation(channels, groups[0])}
  let channel = i;`
  const end = isTree
    ? `  partial[lane] = total;
  workgroupBarrier();
  for (var half = ${threads / 2}u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u) {
    total = partial[0];
    ${stores}
  }`
    : `  ${stores}`
  return dispatch({
    label,
    bindings: [
      reads('dy', { in: 0 }, floatElement(dy)),
      reads('x', { in: 1 }, floatElement(x)),
      // Element by element, since without rows there is no whole pair to bind.
      reads('stats', { in: 2 }),
      ...(outputs.weight === undefined ? [] : [writes('dweight', output(outputs.weight))]),
      ...(outputs.bias === undefined ? [] : [writes('dbias', output(outputs.bias))]),
    ],
    constants: {
      ...constantsOf(sizes),
      CHANNELS: channels,
      COUNT: (rows / rowGroups) * sizes.span,
    },
    body: `// dweight[c] = sum of dy * normal, dbias[c] = sum of dy over channel c, in a fixed order.
${start}
  var total = vec2<f32>(0.0, 0.0);
  for (var e = ${from}; e < COUNT; e += ${step}) {
    ${term}
  }
${end}
}
`,
    groups,
  })
}
