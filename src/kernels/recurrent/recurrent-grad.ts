import { ShapeError } from '../../util/errors.ts'
import { formatShape, tensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import {
  type Case,
  type Dispatch,
  defineOp,
  type HostArray,
  type Lowering,
  type Op,
  type OpCall,
} from '../op.ts'
import { dispatch, reads, writes } from '../shader.ts'
import { type CellKind, cells, type RecurrentAttrs, type Sizes, sizesOf } from './cells.ts'
import { recurrentGradReference } from './recurrent.ref.ts'
import mainWgsl from './recurrent-grad.wgsl?raw'
import {
  activationsWgsl,
  type Example,
  lengthsBinding,
  placesWgsl,
  sequenceCase,
  sequenceGroups,
  sequenceVariants,
} from './shared.ts'

/** Which of forward's results the loss depends on; the others have no gradient. */
export interface RecurrentGradAttrs extends RecurrentAttrs {
  readonly hasDy: boolean
  readonly hasDhn: boolean
  readonly hasDcn: boolean
}

/** Positions of a call's inputs: the weight, what forward saved (y of the plain cells), then what there is. */
function inputsOf({ cell, lengths, hasDy, hasDhn, hasDcn }: RecurrentGradAttrs) {
  let next = 2
  return {
    weight: 0,
    saved: 1,
    hidden: cell === 'gru' ? next++ : undefined,
    c0: cell === 'lstm' ? next++ : undefined,
    dy: hasDy ? next++ : undefined,
    dhn: hasDhn ? next++ : undefined,
    dcn: hasDcn ? next++ : undefined,
    lengths: lengths === 'input' ? next++ : undefined,
    count: next,
  }
}

/** Positions of a call's outputs. */
function outputsOf(cell: CellKind) {
  if (cell === 'gru') return { dGates: 0, dOwn: 1, dh0: 2, dc0: undefined }
  return { dGates: 0, dOwn: undefined, dh0: 1, dc0: cell === 'lstm' ? 2 : undefined }
}

function sizes({ inputs: [weight, saved], attrs }: OpCall<RecurrentGradAttrs>): Sizes {
  const { gates, saved: parts } = cells[attrs.cell]
  const width = gates * weight.shape[1]
  const gatesType = tensorType([saved.shape[0], saved.shape[1], width])
  if (saved.shape.length !== 3 || saved.shape[2] !== Math.max(1, parts) * weight.shape[1])
    throw new ShapeError(
      'shape.mismatch',
      `recurrentGrad (${attrs.cell}): the saved values ${formatShape(saved.shape)} do not belong to weight ${formatShape(weight.shape)}. Pass forward's outputs unchanged.`,
    )
  return sizesOf('recurrentGrad', attrs, gatesType, weight)
}

/** From `d`, the gradient by the new state: writes the gates' gradients, and what of dh0 and dc0 goes around the weights. */
const cellWgsl: Record<CellKind, string> = {
  tanh: `
  let y = saved[row * H + j];
  dGates[row * H + j] = d * (1.0 - y * y);
  dh0[b * H + j] = 0.0;`,
  relu: `
  dGates[row * H + j] = select(d, 0.0, saved[row * H + j] <= 0.0);
  dh0[b * H + j] = 0.0;`,
  gru: `
  let base = row * 4u * H + j;
  let r = saved[base];
  let z = saved[base + H];
  let n = saved[base + 2u * H];
  let dn = d * (1.0 - z) * (1.0 - n * n);
  let dz = d * (hidden[row * H + j] - n) * z * (1.0 - z);
  let dr = dn * saved[base + 3u * H] * r * (1.0 - r);
  let to = row * 3u * H + j;
  dGates[to] = dr;
  dGates[to + H] = dz;
  dGates[to + 2u * H] = dn;
  dOwn[to] = dr;
  dOwn[to + H] = dz;
  dOwn[to + 2u * H] = dn * r;
  dh0[b * H + j] = d * z;`,
  lstm: `
  let base = row * 5u * H + j;
  let i = saved[base];
  let f = saved[base + H];
  let g = saved[base + 2u * H];
  let o = saved[base + 3u * H];
  let t = tanh_of(saved[base + 4u * H]);
  var c: f32;
  if (s == 0u) {
    c = c0[b * H + j];
  } else {
    c = saved[(before * 5u + 4u) * H + j];
  }
  let dc = dc0[b * H + j] + d * o * (1.0 - t * t);
  let to = row * 4u * H + j;
  dGates[to] = dc * g * i * (1.0 - i);
  dGates[to + H] = dc * c * f * (1.0 - f);
  dGates[to + 2u * H] = dc * i * (1.0 - g * g);
  dGates[to + 3u * H] = d * t * o * (1.0 - o);
  dc0[b * H + j] = dc * f;
  dh0[b * H + j] = 0.0;`,
}

function functionsWgsl(attrs: RecurrentGradAttrs, isWide: boolean): string {
  const { cell, hasDy } = attrs
  const { gates } = cells[cell]
  const own = cell === 'gru' ? 'dOwn' : 'dGates'
  const targets = cell === 'gru' ? ['dGates', 'dOwn'] : ['dGates']
  const clears = targets.flatMap((name) =>
    Array.from({ length: gates }, (_, g) => `${name}[(row * ${gates}u + ${g}u) * H + j] = 0.0;`),
  )
  const add = isWide
    ? `
  var sum = vec4f();
  for (var g = 0u; g < ${gates}u * H; g++) {
    sum += ${own}[row * ${gates}u * H + g] * weight[(g * H + first) / 4u];
  }
  let to = b * H + first;
  dh0[to] += sum.x;
  dh0[to + 1u] += sum.y;
  dh0[to + 2u] += sum.z;
  dh0[to + 3u] += sum.w;`
    : `
  var sum = 0.0;
  for (var g = 0u; g < ${gates}u * H; g++) {
    sum += ${own}[row * ${gates}u * H + g] * weight[g * H + first];
  }
  dh0[b * H + first] += sum;`
  return `
fn cell_gradient(row: u32, before: u32, b: u32, s: u32, j: u32) {
  let d = dh0[b * H + j]${hasDy ? ' + dy[row * H + j]' : ''};${cellWgsl[cell]}
}
fn clear_gradient(row: u32, j: u32) {
  ${clears.join('\n  ')}
}
fn add_recurrent(row: u32, b: u32, first: u32) {${add}
}`
}

function lower(call: OpCall<RecurrentGradAttrs>, lanes: number, isWide: boolean): Lowering {
  const { attrs } = call
  const own = sizes(call)
  const { T, B, H } = own
  if (B * H === 0) return { dispatches: [] }
  const at = inputsOf(attrs)
  const out = outputsOf(attrs.cell)
  const groups = sequenceGroups(own)
  const main = dispatch({
    label: `${attrs.cell} gradient ${T}x${B}x${H}${attrs.isReverse ? ' reverse' : ''}`,
    bindings: [
      reads('weight', { in: at.weight }, isWide ? 'vec4<f32>' : 'f32'),
      reads('saved', { in: at.saved }),
      ...(at.hidden === undefined ? [] : [reads('hidden', { in: at.hidden })]),
      ...(at.c0 === undefined ? [] : [reads('c0', { in: at.c0 })]),
      ...(at.dy === undefined ? [] : [reads('dy', { in: at.dy })]),
      ...lengthsBinding(attrs, at.lengths ?? 0),
      writes('dGates', { out: out.dGates }),
      ...(out.dOwn === undefined ? [] : [writes('dOwn', { out: out.dOwn })]),
      writes('dh0', { out: out.dh0 }),
      ...(out.dc0 === undefined ? [] : [writes('dc0', { out: out.dc0 })]),
    ],
    constants: { T, B, H, LANES: lanes, PER_LANE: isWide ? 4 : 1, GROUPS_X: groups[0] },
    body: [activationsWgsl, placesWgsl(attrs, own), functionsWgsl(attrs, isWide), mainWgsl].join(
      '\n',
    ),
    groups,
  })
  return { dispatches: [...firstStates(call, own), ...(T > 0 ? [main] : [])] }
}

/** dh0 (and dc0) as backward begins: the gradients by the final states. */
function firstStates({ attrs }: OpCall<RecurrentGradAttrs>, { B, H }: Sizes): Dispatch[] {
  const at = inputsOf(attrs)
  const out = outputsOf(attrs.cell)
  return eachElement({
    label: `${attrs.cell} gradient of final states`,
    count: B * H,
    bindings: [
      ...(at.dhn === undefined ? [] : [reads('dhn', { in: at.dhn })]),
      ...(at.dcn === undefined ? [] : [reads('dcn', { in: at.dcn })]),
      writes('dh0', { out: out.dh0 }),
      ...(out.dc0 === undefined ? [] : [writes('dc0', { out: out.dc0 })]),
    ],
    main: [
      `dh0[i] = ${at.dhn === undefined ? '0.0' : 'dhn[i]'};`,
      ...(out.dc0 === undefined ? [] : [`dc0[i] = ${at.dcn === undefined ? '0.0' : 'dcn[i]'};`]),
    ],
  })
}

function example(sample: Example<RecurrentGradAttrs>): Case<RecurrentGradAttrs> {
  const { cell, T, B, H, more } = sample
  const attrs: RecurrentGradAttrs = {
    cell,
    isReverse: false,
    batchFirst: false,
    lengths: 'all',
    hasDy: true,
    hasDhn: true,
    hasDcn: cell === 'lstm',
    ...more,
  }
  const { gates, saved } = cells[cell]
  const lead = attrs.batchFirst ? [B, T] : [T, B]
  const steps = (width: number) => tensorType([...lead, width * H])
  const state = tensorType([B, H])
  const inputs = [
    tensorType([gates * H, H]),
    steps(Math.max(1, saved)),
    ...(cell === 'gru' ? [steps(1)] : cell === 'lstm' ? [state] : []),
    ...(attrs.hasDy ? [steps(1)] : []),
    ...(attrs.hasDhn ? [state] : []),
    ...(attrs.hasDcn ? [state] : []),
  ]
  return sequenceCase(sample, attrs, inputs, [!attrs.hasDy && 'without dy'])
}

/**
 * The gradients of `recurrent` by its gates (GRU: and by its recurrent sums), h0 (and c0), by backpropagation through time.
 *
 * The weight's gradient is one matmul of the second of these with the states before each step, which the gradient rule adds.
 */
export const recurrentGrad: Op<RecurrentGradAttrs> = defineOp<RecurrentGradAttrs>({
  name: 'recurrentGrad',
  infer(inputs, attrs) {
    const { cell } = attrs
    const { B, H } = sizes({ inputs, outputs: [], attrs })
    const [first, second] = inputs[1].shape
    const gates = tensorType([first, second, cells[cell].gates * H])
    const state = tensorType([B, H])
    return [gates, ...(cell === 'gru' ? [gates] : []), state, ...(cell === 'lstm' ? [state] : [])]
  },
  ...sequenceVariants(
    lower,
    ({ inputs }) => inputs[0],
    (call) => sizes(call).H / 4,
  ),
  reference(inputs, call) {
    const { attrs } = call
    const at = inputsOf(attrs)
    const optional = (position: number | undefined): HostArray | undefined =>
      position === undefined ? undefined : inputs[position]
    const { dGates, dOwn, dh0, dc0 } = recurrentGradReference(attrs, sizes(call), {
      weight: inputs[at.weight],
      saved: inputs[at.saved],
      hidden: optional(at.hidden),
      c0: optional(at.c0),
      lengths: optional(at.lengths),
      dy: optional(at.dy),
      dhn: optional(at.dhn),
      dcn: optional(at.dcn),
    })
    const { cell } = attrs
    return [dGates, ...(cell === 'gru' ? [dOwn] : []), dh0, ...(cell === 'lstm' ? [dc0] : [])]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 1e-4,
    because:
      'each step adds its rounding to what it hands on; made-up gates of standard normals, not between 0 and 1, let that grow',
  },
  cases: [
    { cell: 'lstm', T: 1, B: 1, H: 1 } as const,
    { cell: 'lstm', T: 3, B: 3, H: 5 } as const,
    { cell: 'lstm', T: 2, B: 2, H: 68, more: { lengths: 'input', isReverse: true } } as const,
    { cell: 'lstm', T: 3, B: 2, H: 4, more: { batchFirst: true, hasDy: false } } as const,
    { cell: 'lstm', T: 0, B: 2, H: 4 } as const,
    { cell: 'lstm', T: 1, B: 2, H: 4, fill: 'huge' } as const,
    { cell: 'gru', T: 3, B: 3, H: 7 } as const,
    { cell: 'gru', T: 3, B: 3, H: 8, more: { lengths: [3, 0, 2], isReverse: true } } as const,
    { cell: 'gru', T: 2, B: 2, H: 3, more: { batchFirst: true, hasDhn: false } } as const,
    { cell: 'tanh', T: 3, B: 2, H: 6, more: { lengths: 'input' } } as const,
    { cell: 'tanh', T: 2, B: 0, H: 6 } as const,
    { cell: 'relu', T: 3, B: 2, H: 8, fill: 'ties' } as const,
  ].map(example),
})
