import { ShapeError } from '../../util/errors.ts'
import {
  formatShape,
  type Shape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import { matmul, plain } from '../matmul/matmul.ts'
import {
  type Case,
  type Dispatch,
  defineOp,
  type Lowering,
  type Op,
  type OpCall,
  type Value,
} from '../op.ts'
import { reshape } from '../reshape/reshape.ts'
import { dispatch, reads, type ShaderBinding, writes } from '../shader.ts'
import { sum } from '../sum/sum.ts'
import { type CellKind, cells, type RecurrentAttrs, type Sizes, sizesOf } from './cells.ts'
import { recurrentReference } from './recurrent.ref.ts'
import mainWgsl from './recurrent.wgsl?raw'
import { recurrentGrad } from './recurrent-grad.ts'
import {
  activationsWgsl,
  type Example,
  lengthsBinding,
  placesWgsl,
  sequenceCase,
  sequenceGroups,
  sequenceVariants,
} from './shared.ts'

/** `hasBias` (GRU alone): an input [3H] that is added to the recurrent sums, which for n lies inside the reset gate. */
export interface RecurrentLayerAttrs extends RecurrentAttrs {
  readonly hasBias: boolean
}

/** Positions of a call's inputs. */
export function inputsOf({ cell, hasBias, lengths }: RecurrentLayerAttrs) {
  let next = 3
  return {
    gates: 0,
    weight: 1,
    h0: 2,
    c0: cell === 'lstm' ? next++ : undefined,
    bias: hasBias ? next++ : undefined,
    lengths: lengths === 'input' ? next++ : undefined,
    count: next,
  }
}

/** Positions of a call's outputs. */
export function outputsOf(cell: CellKind) {
  const base = { y: 0, hidden: 1, hn: 2 }
  if (cell === 'lstm') return { ...base, cn: 3, saved: 4 }
  return { ...base, cn: undefined, saved: cell === 'gru' ? 3 : undefined }
}

const sizes = ({ inputs, attrs }: OpCall<RecurrentLayerAttrs>): Sizes =>
  sizesOf('recurrent', attrs, inputs[0], inputs[1])

/** The body of `next_state` after the sums `x0..` and `own0..`. */
const cellWgsl: Record<CellKind, string> = {
  tanh: 'return tanh_of(x0 + own0);',
  relu: `
  let sum = x0 + own0;
  return select(max(sum, 0.0), sum, is_nan(sum));`,
  gru: `
  let r = sigmoid(x0 + own0);
  let z = sigmoid(x1 + own1);
  let n = tanh_of(x2 + r * own2);
  let to = row * 4u * H + j;
  saved[to] = r;
  saved[to + H] = z;
  saved[to + 2u * H] = n;
  saved[to + 3u * H] = own2;
  return (1.0 - z) * n + z * hidden[row * H + j];`,
  lstm: `
  let i = sigmoid(x0 + own0);
  let f = sigmoid(x1 + own1);
  let g = tanh_of(x2 + own2);
  let o = sigmoid(x3 + own3);
  var c: f32;
  if (s == 0u) {
    c = c0[b * H + j];
  } else {
    c = saved[(before * 5u + 4u) * H + j];
  }
  c = f * c + i * g;
  let to = row * 5u * H + j;
  saved[to] = i;
  saved[to + H] = f;
  saved[to + 2u * H] = g;
  saved[to + 3u * H] = o;
  saved[to + 4u * H] = c;
  return o * tanh_of(c);`,
}

function nextStateWgsl({ cell, hasBias }: RecurrentLayerAttrs, isWide: boolean): string {
  const { gates, saved } = cells[cell]
  const all = Array.from({ length: gates }, (_, g) => g)
  const start = (g: number) => (hasBias ? `bias[${g}u * H + j]` : '0.0')
  const sums = isWide
    ? [
        'for (var k = 0u; k < H; k += 4u) {',
        '    let at = row * H + k;',
        '    let h = vec4f(hidden[at], hidden[at + 1u], hidden[at + 2u], hidden[at + 3u]);',
        ...all.map((g) => `    own${g} += dot(h, weight[((${g}u * H + j) * H + k) / 4u]);`),
        '  }',
      ]
    : [
        'for (var k = 0u; k < H; k++) {',
        '    let h = hidden[row * H + k];',
        ...all.map((g) => `    own${g} += h * weight[(${g}u * H + j) * H + k];`),
        '  }',
      ]
  return `
fn next_state(row: u32, before: u32, b: u32, s: u32, j: u32) -> f32 {
  ${all.map((g) => `var own${g} = ${start(g)};`).join('\n  ')}
  ${sums.join('\n')}
  ${all.map((g) => `let x${g} = gates[(row * ${gates}u + ${g}u) * H + j];`).join('\n  ')}
  ${cellWgsl[cell].trim()}
}
fn clear_saved(row: u32, j: u32) {
  ${Array.from({ length: saved }, (_, part) => `saved[(row * ${saved}u + ${part}u) * H + j] = 0.0;`).join('\n  ')}
}`
}

function lower(call: OpCall<RecurrentLayerAttrs>, lanes: number, isWide: boolean): Lowering {
  const { attrs } = call
  const own = sizes(call)
  const { T, B, H } = own
  if (B * H === 0) return { dispatches: [] }
  const at = inputsOf(attrs)
  const out = outputsOf(attrs.cell)
  const groups = sequenceGroups(own)
  const layer = dispatch({
    label: `${attrs.cell} ${T}x${B}x${H}${attrs.isReverse ? ' reverse' : ''}`,
    bindings: [
      reads('gates', { in: at.gates }),
      reads('weight', { in: at.weight }, isWide ? 'vec4<f32>' : 'f32'),
      reads('h0', { in: at.h0 }),
      ...(at.c0 === undefined ? [] : [reads('c0', { in: at.c0 })]),
      ...(at.bias === undefined ? [] : [reads('bias', { in: at.bias })]),
      ...lengthsBinding(attrs, at.lengths ?? 0),
      writes('y', { out: out.y }),
      writes('hidden', { out: out.hidden }),
      ...(out.saved === undefined ? [] : [writes('saved', { out: out.saved })]),
    ],
    constants: { T, B, H, LANES: lanes, GROUPS_X: groups[0] },
    body: [activationsWgsl, placesWgsl(attrs, own), nextStateWgsl(attrs, isWide), mainWgsl].join(
      '\n',
    ),
    groups,
  })
  return { dispatches: [...(T > 0 ? [layer] : []), ...finalStates(call, own)] }
}

/** hn (and cn): each sequence's state after its last step. */
function finalStates({ attrs }: OpCall<RecurrentLayerAttrs>, own: Sizes): Dispatch[] {
  const { T, B, H } = own
  const at = inputsOf(attrs)
  const out = outputsOf(attrs.cell)
  // Nothing of a layer without steps may be bound as read: it is empty.
  const after: ShaderBinding[] =
    T === 0
      ? []
      : [
          reads('y', { out: out.y }),
          ...(out.cn === undefined ? [] : [reads('saved', { out: out.saved! })]),
        ]
  const last = 'row_of(time_of(length - 1u, length), b)'
  const pick = (initial: string, then: string) =>
    T === 0 ? `${initial}[i]` : `pick(${initial}[i], ${then}, length)`
  return eachElement({
    label: `${attrs.cell} final states`,
    count: B * H,
    bindings: [
      reads('h0', { in: at.h0 }),
      ...(at.c0 === undefined ? [] : [reads('c0', { in: at.c0 })]),
      ...lengthsBinding(attrs, at.lengths ?? 0),
      ...after,
      writes('hn', { out: out.hn }),
      ...(out.cn === undefined ? [] : [writes('cn', { out: out.cn })]),
    ],
    constants: { T, B, H },
    functions: `${placesWgsl(attrs, own)}
fn pick(initial: f32, later: f32, length: u32) -> f32 {
  return select(initial, later, length > 0u);
}`,
    main: [
      'let b = i / H;',
      'let length = length_of(b);',
      T === 0 ? '' : `let row = select(0u, ${last}, length > 0u);`,
      `hn[i] = ${pick('h0', 'y[row * H + i % H]')};`,
      out.cn === undefined ? '' : `cn[i] = ${pick('c0', 'saved[(row * 5u + 4u) * H + i % H]')};`,
    ],
  })
}

function checkStates(attrs: RecurrentLayerAttrs, inputs: readonly TensorType[], own: Sizes): void {
  const at = inputsOf(attrs)
  const { B, H } = own
  const expected: (readonly [name: string, at: number | undefined, shape: Shape, dtype: string])[] =
    [
      ['h0', at.h0, [B, H], 'f32'],
      ['c0', at.c0, [B, H], 'f32'],
      ['bias', at.bias, [3 * H], 'f32'],
      ['lengths', at.lengths, [B], 'i32'],
    ]
  if (inputs.length !== at.count || (attrs.hasBias && attrs.cell !== 'gru'))
    throw new ShapeError(
      'shape.unsupported',
      `recurrent (${attrs.cell}): expected ${at.count} inputs, with a recurrent bias only for a GRU, got ${inputs.length}. Add the bias of other cells to the gates.`,
    )
  for (const [name, position, shape, dtype] of expected) {
    if (position === undefined) continue
    const type = inputs[position]
    if (type.dtype !== dtype || !sameShape(type.shape, shape))
      throw new ShapeError(
        'shape.mismatch',
        `recurrent (${attrs.cell}): expected ${name} ${dtype}${formatShape(shape)}, got ${type.dtype}${formatShape(type.shape)}. Check batch and hiddenSize.`,
      )
  }
}

function example(sample: Example<RecurrentLayerAttrs>): Case<RecurrentLayerAttrs> {
  const { cell, T, B, H, more } = sample
  const attrs: RecurrentLayerAttrs = {
    cell,
    isReverse: false,
    batchFirst: false,
    lengths: 'all',
    hasBias: false,
    ...more,
  }
  const { gates } = cells[cell]
  const at = inputsOf(attrs)
  const state = tensorType([B, H])
  const inputs = [
    tensorType([...(attrs.batchFirst ? [B, T] : [T, B]), gates * H]),
    tensorType([gates * H, H]),
    state,
    ...(at.c0 === undefined ? [] : [state]),
    ...(at.bias === undefined ? [] : [tensorType([gates * H])]),
  ]
  return sequenceCase(sample, attrs, inputs, [attrs.hasBias && 'bias'])
}

/**
 * One direction of one layer of an RNN, GRU or LSTM over whole sequences.
 *
 * The input side is the caller's: `gates` are x times the input weights plus biases for all steps, one matmul.
 * shape: gates [T, B, GH] (or [B, T, GH]), weight [GH, H], h0 (and c0) [B, H] -> y [T, B, H], the state before each step [T, B, H], hn (and cn) [B, H],
 * and what backward needs. Beyond a sequence's length all of its outputs are 0.
 */
export const recurrent: Op<RecurrentLayerAttrs> = defineOp<RecurrentLayerAttrs>({
  name: 'recurrent',
  infer(inputs, attrs) {
    const own = sizesOf('recurrent', attrs, inputs[0], inputs[1])
    checkStates(attrs, inputs, own)
    const { T, B, H } = own
    const lead = attrs.batchFirst ? [B, T] : [T, B]
    const { saved } = cells[attrs.cell]
    const state = tensorType([B, H])
    return [
      tensorType([...lead, H]),
      tensorType([...lead, H]),
      state,
      ...(attrs.cell === 'lstm' ? [state] : []),
      ...(saved > 0 ? [tensorType([...lead, saved * H])] : []),
    ]
  },
  ...sequenceVariants(
    lower,
    ({ inputs }) => inputs[1],
    (call) => sizes(call).H,
  ),
  gradient(context) {
    const { inputs, outputs, outputGradients, attrs } = context
    const at = inputsOf(attrs)
    const out = outputsOf(attrs.cell)
    const gradientAt = (position: number | undefined) =>
      position === undefined ? undefined : outputGradients[position]
    const [dy, dhn, dcn] = [gradientAt(out.y), gradientAt(out.hn), gradientAt(out.cn)]
    const { hasBias, ...common } = attrs
    const given = [dy, dhn, dcn].filter((value): value is Value => value !== undefined)
    const state =
      attrs.cell === 'gru' ? [outputs[out.hidden]] : attrs.cell === 'lstm' ? [inputs[at.c0!]] : []
    const results = context.emit(
      recurrentGrad,
      [
        inputs[at.weight],
        outputs[out.saved ?? out.y],
        ...state,
        ...given,
        ...(at.lengths === undefined ? [] : [inputs[at.lengths]]),
      ],
      { ...common, hasDy: dy !== undefined, hasDhn: dhn !== undefined, hasDcn: dcn !== undefined },
    )
    const [dGates] = results
    const dOwn = attrs.cell === 'gru' ? results[1] : dGates
    const rows = outputs[out.y].type.shape[0] * outputs[out.y].type.shape[1]
    const flat = (value: Value) =>
      context.emit(reshape, [value], { shape: [rows, value.type.shape[2]] })[0]
    const gradients: (Value | undefined)[] = inputs.map(() => undefined)
    gradients[at.gates] = dGates
    const dFlat = flat(dOwn)
    if (context.needs(at.weight))
      gradients[at.weight] = context.emit(
        matmul,
        [dFlat, flat(outputs[out.hidden])],
        plain('tn'),
      )[0]
    gradients[at.h0] = results[attrs.cell === 'gru' ? 2 : 1]
    if (at.c0 !== undefined) gradients[at.c0] = results[2]
    if (at.bias !== undefined && context.needs(at.bias))
      gradients[at.bias] = context.emit(sum, [dFlat], { axes: [0], keepDims: false })[0]
    return gradients
  },
  reference(inputs, call) {
    const { attrs } = call
    const at = inputsOf(attrs)
    const optional = (position: number | undefined) =>
      position === undefined ? undefined : inputs[position]
    const { y, hidden, hn, cn, saved } = recurrentReference(attrs, sizes(call), {
      gates: inputs[at.gates],
      weight: inputs[at.weight],
      h0: inputs[at.h0],
      c0: optional(at.c0),
      bias: optional(at.bias),
      lengths: optional(at.lengths),
    })
    return [
      y,
      hidden,
      hn,
      ...(attrs.cell === 'lstm' ? [cn] : []),
      ...(cells[attrs.cell].saved > 0 ? [saved] : []),
    ]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 1e-5,
    because:
      'recurrent sums of up to 40 products of standard normals, whose rounding each step hands on to the next',
  },
  cases: [
    { cell: 'lstm', T: 1, B: 1, H: 1 } as const,
    { cell: 'lstm', T: 5, B: 3, H: 7 } as const,
    { cell: 'lstm', T: 4, B: 3, H: 68, more: { lengths: 'input' } } as const,
    { cell: 'lstm', T: 5, B: 2, H: 4, more: { lengths: 'input', isReverse: true } } as const,
    { cell: 'lstm', T: 2, B: 2, H: 8, more: { batchFirst: true }, fill: 'huge' } as const,
    { cell: 'lstm', T: 0, B: 2, H: 4 } as const,
    { cell: 'gru', T: 5, B: 3, H: 7, more: { hasBias: true } } as const,
    {
      cell: 'gru',
      T: 4,
      B: 3,
      H: 8,
      more: { lengths: [4, 0, 2], isReverse: true, batchFirst: true, hasBias: true },
    } as const,
    { cell: 'gru', T: 3, B: 2, H: 4 } as const,
    { cell: 'tanh', T: 4, B: 2, H: 6, more: { lengths: 'input' } } as const,
    { cell: 'tanh', T: 3, B: 0, H: 6 } as const,
    { cell: 'relu', T: 3, B: 2, H: 8, fill: 'ties' } as const,
  ].map(example),
})
