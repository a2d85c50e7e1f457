import { ShapeError } from '../../util/errors.ts'
import { formatShape, type TensorType, tensorType, unify } from '../../util/shape.ts'
import { countedRows, countedRowsWgsl } from '../counted-rows.ts'
import {
  type Case,
  type Dispatch,
  defineOp,
  type HostArray,
  type KernelLimits,
  type Lowering,
  type OpCall,
  type Operand,
  type ScalarSlot,
  type Variant,
} from '../op.ts'
import { adding, laneFunctions, lanesFor, largest } from '../rows.ts'
import { ceilDiv, dispatch, linearGroups, reads, type ShaderBinding, writes } from '../shader.ts'
import { crossEntropyReference } from './cross-entropy.ref.ts'
import lanesBody from './cross-entropy-lanes.wgsl?raw'
import rowsBody from './cross-entropy-rows.wgsl?raw'
import totalBody from './cross-entropy-total.wgsl?raw'
import meanBody from './mean.wgsl?raw'

/**
 * Cross entropy from logits, the mean over the rows that count and are not ignored, with its gradient.
 *
 * Parts: one lowering for all three ops (`lower`), then the ops: the loss alone, its gradient by a given output
 * gradient, and both from one dispatch with the output gradient in a step scalar.
 */
export interface CrossEntropyAttrs {
  /** How many of the first rows count; null: all. */
  readonly count: ScalarSlot | null
  /** Rows with this target do not count. */
  readonly ignoreIndex: number
}

export interface CrossEntropyWithGradAttrs extends CrossEntropyAttrs {
  /** The gradient of the run's loss by this op's loss. */
  readonly seed: ScalarSlot
}

/** Where the parts of a call come from and go to. */
interface Parts extends CrossEntropyAttrs {
  readonly label: string
  readonly loss?: Operand
  readonly dlogits?: Operand
  readonly seed?: ScalarSlot
  readonly dloss?: Operand
}

const maxThreads = 256

const powerOfTwoAtLeast = (count: number): number => 2 ** Math.ceil(Math.log2(Math.max(1, count)))

const sizesOf = (call: OpCall): readonly [rows: number, classes: number] => {
  const [rows, classes] = call.inputs[0].shape
  return [rows, classes]
}

/** WGSL of the mean: over nothing it is 0 where a step scalar counts the rows, else NaN. */
const meanOf = ({ count }: CrossEntropyAttrs): string =>
  `fn mean_of_nothing() -> u32 { return ${count ? '0u' : 'NAN_BITS'}; }\n${meanBody}`

/** The storage variables that `parts` needs besides where the loss goes, and the functions that reach them. */
function link(parts: Parts): { bindings: ShaderBinding[]; wgsl: string } {
  const usesScalars = parts.count !== null || parts.seed !== undefined
  return {
    bindings: [
      reads('logits', { in: 0 }),
      reads('targets', { in: 1 }, 'i32'),
      ...(usesScalars ? [reads('scalars', 'scalars')] : []),
      ...(parts.dloss ? [reads('dloss', parts.dloss)] : []),
      ...(parts.dlogits ? [writes('dlogits', parts.dlogits, 'u32')] : []),
    ],
    wgsl: [
      meanOf(parts),
      countedRowsWgsl(parts.count),
      `fn is_ignored(target_class: i32) -> bool { return target_class == ${parts.ignoreIndex}i; }`,
      `fn gradient_scale() -> f32 { return ${
        parts.seed ? `scalars[${parts.seed.slot}u]` : parts.dloss ? 'dloss[0]' : '1.0'
      }; }`,
      `fn put_gradient(index: u32, bits: u32) { ${parts.dlogits ? 'dlogits[index] = bits;' : ''} }`,
    ].join('\n'),
  }
}

/** Adds `terms` partial sums in scratch tensor 0 up to the loss. */
const lowerTotal = (parts: Parts, loss: Operand, terms: number, threads: number) =>
  dispatch({
    label: `${parts.label} total`,
    bindings: [reads('partials', { scratch: 0 }, 'u32'), writes('loss', loss, 'u32')],
    constants: { N: terms, THREADS: threads },
    body: [meanOf(parts), totalBody].join('\n'),
    groups: [1, 1, 1],
  })

/** One thread a row, then one thread that adds the rows up. */
function lowerNaive(call: OpCall, parts: Parts): Lowering {
  const [rows, classes] = sizesOf(call)
  const { bindings, wgsl } = link(parts)
  const threads = 64
  const groups = linearGroups(ceilDiv(rows, threads))
  const dispatches: Dispatch[] = []
  if (rows > 0) {
    dispatches.push(
      dispatch({
        label: parts.label,
        bindings: [
          ...bindings,
          ...(parts.loss ? [writes('row_losses', { scratch: 0 }, 'u32')] : []),
        ],
        constants: { R: rows, C: classes, THREADS: threads, GROUPS_X: groups[0] },
        body: [
          wgsl,
          `fn put_row(row: u32, bits: u32) { ${parts.loss ? 'row_losses[row] = bits;' : ''} }`,
          `fn put_used(used: u32) { ${parts.loss ? 'row_losses[R] = used;' : ''} }`,
          rowsBody,
        ].join('\n'),
        groups,
      }),
    )
  }
  if (parts.loss) dispatches.push(lowerTotal(parts, parts.loss, rows, 1))
  return { dispatches, scratch: parts.loss ? [tensorType([rows + 1])] : [] }
}

/** Several threads a row where rows are long; all in one group, or one group for each block of rows. */
function lowerLanes(call: OpCall, parts: Parts, isOneGroup: boolean): Lowering {
  const [rows, classes] = sizesOf(call)
  const { bindings, wgsl } = link(parts)
  const lanes = lanesFor(classes)
  // Below 32 threads nothing is saved on any device.
  const threads = Math.min(maxThreads, Math.max(32, powerOfTwoAtLeast(rows * lanes)))
  const blocks = Math.max(1, ceilDiv(rows, threads / lanes))
  const groupCount = isOneGroup ? 1 : blocks
  const groups = linearGroups(groupCount)
  const isWhole = groupCount === 1
  const store = !parts.loss
    ? ''
    : isWhole
      ? 'loss[0] = mean_bits(total, is_bad, used);'
      : 'partials[group] = value_bits(total, is_bad); if (group == 0u) { partials[GROUPS] = used; }'
  const main = dispatch({
    label: parts.label,
    bindings: [
      ...bindings,
      ...(parts.loss
        ? [isWhole ? writes('loss', parts.loss, 'u32') : writes('partials', { scratch: 0 }, 'u32')]
        : []),
    ],
    constants: {
      R: rows,
      C: classes,
      THREADS: threads,
      LANES: lanes,
      STEPS: blocks / groupCount,
      GROUPS: groupCount,
      GROUPS_X: groups[0],
      HAS_GRADIENT: parts.dlogits ? 1 : 0,
      HAS_LOSS: parts.loss ? 1 : 0,
    },
    body: [
      wgsl,
      `fn put_total(group: u32, total: f32, is_bad: bool, used: u32) { ${store} }`,
      laneFunctions([largest, adding], lanes, threads),
      lanesBody,
    ].join('\n'),
    groups,
  })
  if (!parts.loss || isWhole) return { dispatches: [main] }
  return {
    dispatches: [main, lowerTotal(parts, parts.loss, groupCount, maxThreads)],
    scratch: [tensorType([groupCount + 1])],
  }
}

const hasThreads = ({ maxInvocations }: KernelLimits): boolean => maxInvocations >= maxThreads

/** On a CPU barriers cost more than the lanes save, unless there are too few rows to go round. */
const prefersNaive = (call: OpCall, limits: KernelLimits): boolean => {
  const [rows, classes] = sizesOf(call)
  return !hasThreads(limits) || (limits.isSoftware === true && rows >= 64 && lanesFor(classes) > 1)
}

/** Small calls take one group: its single dispatch is quicker than two over many groups. */
const preferredLossVariant = (call: OpCall, limits: KernelLimits): string => {
  const [rows, classes] = sizesOf(call)
  if (prefersNaive(call, limits)) return 'naive'
  return rows < 512 && rows * classes <= 16_384 ? 'oneGroup' : 'groups'
}

const lossVariants = <A extends CrossEntropyAttrs>(
  partsOf: (attrs: A) => Parts,
): [Variant<A>, ...Variant<A>[]] => [
  { name: 'naive', lower: (call) => lowerNaive(call, partsOf(call.attrs)) },
  {
    name: 'oneGroup',
    when: (call, limits) =>
      hasThreads(limits) && call.inputs[0].shape[0] * lanesFor(call.inputs[0].shape[1]) <= 65_536,
    lower: (call) => lowerLanes(call, partsOf(call.attrs), true),
  },
  {
    name: 'groups',
    when: (_call, limits) => hasThreads(limits),
    lower: (call) => lowerLanes(call, partsOf(call.attrs), false),
  },
]

function inferLogits(op: string, inputs: readonly TensorType[]): readonly [TensorType, TensorType] {
  const [logits, target] = inputs
  unify(op, [
    ['logits', 'R C', logits.shape],
    ['target', 'R', target.shape],
  ])
  if (logits.dtype !== 'f32' || target.dtype !== 'i32') {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected f32 logits and i32 targets, got ${logits.dtype}${formatShape(logits.shape)} and ${target.dtype}${formatShape(target.shape)}. Pass class indices as i32.`,
    )
  }
  return [logits, target]
}

const usedRows = (
  rows: number,
  { count, ignoreIndex }: CrossEntropyAttrs,
  scalars: readonly number[],
) => ({ count: countedRows(rows, count, scalars), ofNothing: count ? 0 : Number.NaN, ignoreIndex })

const because =
  'exp is allowed 3 + 2|x| ulp and log 2^-21 in WGSL; the loss adds one log to a difference of logits'

const rowsCase = <A>(
  name: string,
  [rows, classes]: readonly [number, number],
  attrs: A,
  more: Partial<Case<A>> = {},
): Case<A> => ({
  name,
  inputs: [tensorType([rows, classes]), tensorType([rows], 'i32')],
  integerBelow: { 1: classes },
  attrs,
  ...more,
})

const all: CrossEntropyAttrs = { count: null, ignoreIndex: -100 }
const counted: CrossEntropyAttrs = { ...all, count: { slot: 2 } }

/** Shapes and fills that every op of the family is tried with; `scalars[1]` is the seed, `scalars[2]` the count. */
const sharedCases: readonly Case<CrossEntropyAttrs>[] = [
  rowsCase('one element', [1, 1], all),
  rowsCase('mnist batch', [64, 10], all),
  rowsCase('lanes, not a multiple', [5, 65], all),
  rowsCase('long rows', [3, 1003], all),
  rowsCase('no rows', [0, 8], all),
  rowsCase('many rows', [700, 10], all),
  rowsCase('many long rows', [520, 37], counted, { scalars: [0, 0.5, 515] }),
  rowsCase('huge', [6, 40], all, { fill: 'huge' }),
  rowsCase('ties', [33, 7], all, { fill: 'ties' }),
  rowsCase('fewer counted', [9, 10], counted, { scalars: [0, -2, 5] }),
  rowsCase('none counted', [9, 10], counted, { scalars: [0, 1.5, 0] }),
  rowsCase('count past the rows', [9, 10], counted, { scalars: [0, 1.5, 100] }),
  rowsCase('targets outside', [40, 5], counted, {
    scalars: [0, 1, 33],
    integerBelow: { 1: 7 },
  }),
  rowsCase(
    'ignored targets, fewer counted',
    [9, 10],
    { ...counted, ignoreIndex: 3 },
    {
      scalars: [0, 1.5, 7],
      integerBelow: { 1: 5 },
    },
  ),
  rowsCase('ignored targets, many rows', [700, 10], { ...all, ignoreIndex: 4 }),
  rowsCase('all ignored', [9, 10], { ...all, ignoreIndex: 0 }, { integerBelow: { 1: 1 } }),
]

/**
 * The mean of logsumexp(logits) - logits[target] over those of the first `count` rows whose target is not `ignoreIndex`.
 *
 * shape: logits R C f32, target R i32; loss [].
 * numerics: NaN when a counted target is outside 0..C-1. The mean over nothing is NaN, but 0 with `count`: a rank's share may be empty.
 */
export const crossEntropy = defineOp<CrossEntropyAttrs>({
  name: 'crossEntropy',
  infer(inputs) {
    inferLogits('crossEntropy', inputs)
    return [tensorType([])]
  },
  variants: lossVariants((attrs) => ({ ...attrs, label: 'crossEntropy', loss: { out: 0 } })),
  preferred: preferredLossVariant,
  gradient({ inputs, outputGradients: [dloss], attrs, needs, emit }) {
    if (!dloss || !needs(0)) return []
    const [logits, target] = inputs
    return [emit(crossEntropyGrad, [logits, target, dloss], attrs)[0]]
  },
  reference([logits, target], call, scalars) {
    const [rows, classes] = sizesOf(call)
    const used = usedRows(rows, call.attrs, scalars)
    return [Float64Array.of(crossEntropyReference(logits, target, classes, used).loss)]
  },
  tolerance: { absolute: 1e-6, relative: 1e-6, because },
  cases: sharedCases,
})

/**
 * The gradient of `crossEntropy` by its logits, times `dloss`.
 *
 * shape: logits R C f32, target R i32, dloss []; dlogits R C.
 */
export const crossEntropyGrad = defineOp<CrossEntropyAttrs>({
  name: 'crossEntropyGrad',
  infer(inputs) {
    const [logits] = inferLogits('crossEntropyGrad', inputs)
    unify('crossEntropyGrad', [['dloss', '', inputs[2].shape]])
    return [logits]
  },
  variants: [
    { name: 'naive', lower: (call) => lowerNaive(call, gradParts(call.attrs)) },
    {
      name: 'groups',
      when: (_call, limits) => hasThreads(limits),
      lower: (call) => lowerLanes(call, gradParts(call.attrs), false),
    },
  ],
  preferred: (call, limits) => (prefersNaive(call, limits) ? 'naive' : 'groups'),
  reference([logits, target, dloss], call, scalars) {
    const [rows, classes] = sizesOf(call)
    const used = usedRows(rows, call.attrs, scalars)
    return [crossEntropyReference(logits, target, classes, used, dloss[0]).dlogits]
  },
  tolerance: { absolute: 1e-6, relative: 2e-6, because },
  cases: sharedCases.map((sample) => ({
    ...sample,
    inputs: [...sample.inputs, tensorType([])],
  })),
})

const gradParts = (attrs: CrossEntropyAttrs): Parts => ({
  ...attrs,
  label: 'crossEntropyGrad',
  dloss: { in: 2 },
  dlogits: { out: 0 },
})

/**
 * Loss and gradient together; the loss's own gradient is the step scalar `seed`.
 *
 * shape: logits R C f32, target R i32; loss [], dlogits R C.
 * cost: one dispatch for small R C, else two.
 */
export const crossEntropyWithGrad = defineOp<CrossEntropyWithGradAttrs>({
  name: 'crossEntropyWithGrad',
  infer(inputs) {
    const [logits] = inferLogits('crossEntropyWithGrad', inputs)
    return [tensorType([]), logits]
  },
  variants: lossVariants((attrs) => ({
    ...attrs,
    label: 'crossEntropyWithGrad',
    loss: { out: 0 },
    dlogits: { out: 1 },
  })),
  preferred: preferredLossVariant,
  reference([logits, target], call, scalars): HostArray[] {
    const [rows, classes] = sizesOf(call)
    const used = usedRows(rows, call.attrs, scalars)
    const scale = scalars[call.attrs.seed.slot]
    const { loss, dlogits } = crossEntropyReference(logits, target, classes, used, scale)
    return [Float64Array.of(loss), dlogits]
  },
  tolerance: { absolute: 1e-6, relative: 2e-6, because },
  cases: sharedCases.map((sample) => ({
    ...sample,
    scalars: sample.scalars ?? [0, 1],
    attrs: { ...sample.attrs, seed: { slot: 1 } },
  })),
})
