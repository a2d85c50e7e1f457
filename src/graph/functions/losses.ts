import { crossEntropy as crossEntropyOp } from '../../kernels/cross-entropy/cross-entropy.ts'
import { crossEntropyRows } from '../../kernels/cross-entropy-rows/cross-entropy-rows.ts'
import type { ScalarSlot } from '../../kernels/op.ts'
import { topKCorrect } from '../../kernels/top-k/top-k.ts'
import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import {
  checkChoice,
  checkFlag,
  checkNumber,
  checkOptions,
  isShare,
  type OptionNames,
} from '../../util/options.ts'
import { countElements, formatShape, sameShape } from '../../util/shape.ts'
import {
  elementwise,
  emit,
  emitAll,
  mustBeTensor,
  type Operand,
  type Tensor,
} from '../trace/tensor.ts'
import { activeTrace, type MeanOver } from '../trace/trace.ts'
import { mustCount } from './sample-count.ts'
import { arange } from './shape.ts'

/** How a loss reduces the losses of elements or rows. Losses are named as in torch.nn.functional. */

export type Reduction = 'none' | 'sum' | 'mean'

export interface LossOptions {
  /** Reduction of the losses of elements or rows; default `mean`. */
  readonly reduction?: Reduction
  /**
   * Number of leading samples that count, for batches that are not full: `sampleCount()` or your own step scalar. The losses of the
   * other samples are 0, whatever finite values they hold. A mean is taken over the samples that count; if none do, it is 0.
   */
  readonly count?: ScalarSlot
}

/** PyTorch's default of `ignoreIndex`. */
export const ignoredClass = -100

/** The losses of the first `count` samples, and 0 for the others. */
function counted(losses: Tensor, count: ScalarSlot): Tensor {
  const [rows = 1, ...others] = losses.shape
  activeTrace('a loss').scalars.countsAmong(count, rows)
  const index = arange(rows).reshape([rows, ...others.map(() => 1)])
  const isCounted = elementwise('lt', { index, count })
  return elementwise('where', { isCounted, losses, rest: 0 })
}

/** Reduces the losses; of an unreduced one of no dimensions `count` is that of one sample. */
function reduce(losses: Tensor, { reduction = 'mean', count }: LossOptions): Tensor {
  const all = count
    ? counted(losses.shape.length === 0 ? losses.reshape([1]) : losses, count)
    : losses
  if (reduction === 'none') return all.reshape(losses.shape)
  if (reduction === 'sum') return all.sum()
  if (!count) return all.mean()
  const [rows, ...others] = all.shape
  const mean = all.sum().div(countedRows(rows, count).mul(countElements(others)))
  return meanOver(mean, { rows, count })
}

/** Notes what a loss is a mean over, by which ranks and micro-steps that count differently weigh it. */
export function meanOver(loss: Tensor, over: MeanOver): Tensor {
  activeTrace('a loss').means.set(loss.value, over)
  return loss
}

/** The number of samples that count, and at least 1, so that a mean over nothing is 0. */
const countedRows = (rows: number, count: ScalarSlot): Tensor =>
  elementwise('clamp', { count, min: 1, max: Math.max(1, rows) })

/** Options of every loss. */
export const plainOptions = { reduction: true, count: true } as const

const reductions: readonly Reduction[] = ['none', 'sum', 'mean']

/** Further options of some losses. */
interface FurtherOptions {
  readonly ignoreIndex?: number
  readonly labelSmoothing?: number
  readonly delta?: number
  readonly beta?: number
  readonly logTarget?: boolean
}

/** errors: `config.invalid` for an option that the loss does not have, and for a value that it cannot have. */
export function checkLoss<T extends Pick<LossOptions, 'count'> & { readonly reduction?: string }>(
  where: string,
  options: T,
  known: OptionNames<T>,
  choices: readonly string[] = reductions,
): T {
  checkOptions(where, options, known)
  checkChoice(where, 'reduction', options.reduction, choices)
  mustCount(where, options.count)
  const { ignoreIndex, labelSmoothing, delta, beta, logTarget } = options as FurtherOptions
  checkNumber(where, 'ignoreIndex', ignoreIndex, Number.isInteger, 'a whole number')
  checkNumber(where, 'labelSmoothing', labelSmoothing, isShare, 'within 0..1')
  checkNumber(where, 'delta', delta, (value) => value > 0, 'above 0')
  checkNumber(where, 'beta', beta, (value) => value >= 0, 'at least 0')
  checkFlag(where, 'logTarget', logTarget)
  return options
}

/** Reductions that `klDiv` has. */
export const klReductions: readonly string[] = [...reductions, 'batchmean']

/** Predictions and targets of one shape: what PyTorch warns of, the mean over a broadcast, is never meant. */
function refuseBroadcast(where: string, input: Tensor, target: Tensor): void {
  mustBeTensor(where, { input, target })
  if (!sameShape(input.shape, target.shape)) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: input and target must have the same shape, got ${formatShape(input.shape)} and ${formatShape(target.shape)}. Reshape one of them.`,
    )
  }
}

// --- regression ---

/** Returns (input - target)^2. */
export function mseLoss(input: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  checkLoss('mseLoss', options, plainOptions)
  refuseBroadcast('mseLoss', input, target)
  return reduce(elementwise('squaredError', { input, target }), options)
}

/** Returns |input - target|. */
export function l1Loss(input: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  checkLoss('l1Loss', options, plainOptions)
  refuseBroadcast('l1Loss', input, target)
  return reduce(elementwise('absoluteError', { input, target }), options)
}

/** Returns d^2 / 2 up to |d| = delta, and delta (|d| - delta / 2) beyond, for d = input - target. */
export function huberLoss(
  input: Tensor,
  target: Tensor,
  options: LossOptions & { delta?: number } = {},
): Tensor {
  const { delta = 1 } = checkLoss('huberLoss', options, { ...plainOptions, delta: true })
  refuseBroadcast('huberLoss', input, target)
  return reduce(elementwise('huber', { input, target, delta }), options)
}

/** Returns d^2 / (2 beta) below |d| = beta, and |d| - beta / 2 beyond, for d = input - target; |d| for a beta of 0. */
export function smoothL1Loss(
  input: Tensor,
  target: Tensor,
  options: LossOptions & { beta?: number } = {},
): Tensor {
  const known = { ...plainOptions, beta: true } as const
  const { beta = 1, ...others } = checkLoss('smoothL1Loss', options, known)
  if (beta === 0) return l1Loss(input, target, others)
  refuseBroadcast('smoothL1Loss', input, target)
  return reduce(elementwise('huber', { input, target, beta }).div(beta), others)
}

// --- probabilities ---

export interface BinaryOptions extends LossOptions {
  /** Factor for the losses; broadcasts. */
  readonly weight?: Operand
}

/** Returns -target log(input) - (1 - target) log(1 - input) for probabilities; logarithms are clamped to at least -100. */
export function binaryCrossEntropy(
  input: Tensor,
  target: Tensor,
  options: BinaryOptions = {},
): Tensor {
  const known = { ...plainOptions, weight: true } as const
  const { weight } = checkLoss('binaryCrossEntropy', options, known)
  refuseBroadcast('binaryCrossEntropy', input, target)
  const losses = elementwise('bce', { input, target })
  return reduce(weight === undefined ? losses : losses.mul(weight), options)
}

/**
 * Returns `binaryCrossEntropy` of sigmoid(input), exact at any magnitude.
 *
 * `posWeight` multiplies the loss of positive targets; a tensor broadcasts and gets no gradient.
 */
export function binaryCrossEntropyWithLogits(
  input: Tensor,
  target: Tensor,
  options: BinaryOptions & { posWeight?: Operand } = {},
): Tensor {
  const known = { ...plainOptions, weight: true, posWeight: true } as const
  const { weight, posWeight } = checkLoss('binaryCrossEntropyWithLogits', options, known)
  refuseBroadcast('binaryCrossEntropyWithLogits', input, target)
  const losses =
    posWeight === undefined
      ? elementwise('bceLogits', { input, target })
      : elementwise('bceLogitsWeighted', { input, target, posWeight })
  return reduce(weight === undefined ? losses : losses.mul(weight), options)
}

/**
 * Returns target (log target - input) for log-probabilities `input` and a target of probabilities, or with `logTarget` of their logarithms.
 *
 * `batchmean`, the actual divergence, divides the sum by the first dimension, or by the number of its samples that count.
 */
export function klDiv(
  input: Tensor,
  target: Tensor,
  options: Omit<LossOptions, 'reduction'> & {
    reduction?: Reduction | 'batchmean'
    logTarget?: boolean
  } = {},
): Tensor {
  refuseBroadcast('klDiv', input, target)
  const known = { ...plainOptions, logTarget: true } as const
  const { reduction, logTarget = false, count } = checkLoss('klDiv', options, known, klReductions)
  const losses = elementwise(logTarget ? 'klDivLog' : 'klDiv', { input, target })
  if (reduction !== 'batchmean') return reduce(losses, { reduction, count })
  const [rows] = input.shape
  const sum = reduce(losses, { reduction: 'sum', count })
  return count ? meanOver(sum.div(countedRows(rows, count)), { rows, count }) : sum.div(rows)
}

// --- classes ---

/** errors: `shape.unsupported` where these are not scores of classes and a label for each row, such as swapped arguments. */
function requireScores(where: string, scores: string, input: Tensor, target: Tensor): void {
  const [given, wanted] = [input.shape.length, target.shape.length]
  const isRow = wanted === 0 || sameShape(input.shape, target.shape)
  if (input.dtype[0] === 'f' && (given === 1 ? isRow : given >= Math.max(1, wanted))) return
  const [first, second] = [input, target].map(({ dtype, shape }) => dtype + formatShape(shape))
  throw new ShapeError(
    'shape.unsupported',
    `${where}: expected float ${scores}, then a label for each row of them, got ${first}, then ${second}. Pass the ${scores} first.`,
  )
}

/** errors: `shape.unsupported` for class labels that were declared as floats, as inputs are by default; as `requireScores`. */
function checkLabels(where: string, input: Tensor, target: Tensor, otherwise = ''): void {
  mustBeTensor(where, { input, target })
  const { shape, dtype } = target
  const classAxis = Math.min(1, input.shape.length - 1)
  const ofLabels = input.shape.filter((_, axis) => axis !== classAxis)
  const scores = where === 'nllLoss' ? 'log-probabilities' : 'logits'
  requireScores(where, scores, input, target)
  if (dtype !== 'f32' || !sameShape(shape, ofLabels)) return
  throw new ShapeError(
    'shape.unsupported',
    `${where}: class labels must be i32, got f32. Declare the input as tensorType(${formatShape(shape)}, 'i32')${otherwise}.`,
  )
}

/** Has runs check the class numbers that they are given. `classes`: how many there are. */
function boundClasses(
  of: string,
  target: Tensor,
  classes: number,
  { ignoreIndex = ignoredClass, count }: ClassLossOptions,
): void {
  const index = target.value
  const what = 'class'
  activeTrace(of).bound({ of, what, index, end: classes, ignored: ignoreIndex, count })
}

export interface ClassLossOptions extends LossOptions {
  /** A weight per class; shape: [C]. A mean divides by the sum of the rows' weights. */
  readonly weight?: Tensor
  /** Target of rows to ignore; default -100. */
  readonly ignoreIndex?: number
}

export interface CrossEntropyOptions extends ClassLossOptions {
  /** Fraction of each target's probability that is spread over all classes. */
  readonly labelSmoothing?: number
}

const classOptions = { weight: true, ignoreIndex: true, reduction: true, count: true } as const

function classLoss(
  where: string,
  isLogits: boolean,
  input: Tensor,
  target: Tensor,
  { weight, ignoreIndex = ignoredClass, labelSmoothing = 0, reduction, count }: CrossEntropyOptions,
): Tensor {
  mustBeTensor(where, {}, { weight })
  const [losses, weights] = emitAll(
    crossEntropyRows,
    [input, target, ...(weight ? [weight] : [])],
    {
      isLogits,
      smoothing: labelSmoothing,
      ignoreIndex,
      count: count ?? null,
    },
    where,
  )
  if (reduction === 'none') return losses
  const total = losses.sum()
  if (reduction === 'sum') return total
  const all = weights.detach().sum()
  // A rank whose share of a batch is empty has a loss and gradients of 0, as `crossEntropyOp`'s.
  const mean = total.div(count ? all.maximum(1e-30) : all)
  const over = { rows: input.shape[0], count: count ?? null }
  // Weights of classes are the device's: then samples count.
  if (!weight) return meanOver(mean, { ...over, classes: { target: target.value, ignoreIndex } })
  return count ? meanOver(mean, over) : mean
}

/**
 * Returns -log softmax(input)[target].
 *
 * shape: input [N, C, ...] or [C], target [N, ...] or [] of i32 in 0..C-1, or f32 probabilities of input's shape -> [] or, unreduced, [N,
 * ...]
 * cost: one dispatch including its gradient for a mean over [N, C] without weights and smoothing; otherwise one for rows, one per sum, one
 * for the quotient.
 * numerics: NaN for a mean over no rows (0 with `count`), and for a target outside 0..C-1 that is not ignored, where the program computes it:
 * a run that is given one rejects with `graph.misuse`.
 */
export function crossEntropy(
  input: Tensor,
  target: Tensor,
  options: CrossEntropyOptions = {},
): Tensor {
  const {
    weight,
    ignoreIndex = ignoredClass,
    labelSmoothing = 0,
    reduction = 'mean',
    count,
  } = checkLoss('crossEntropy', options, { ...classOptions, labelSmoothing: true })
  mustBeTensor('crossEntropy', { input, target }, { weight })
  const probabilities = `, or pass class probabilities of shape ${formatShape(input.shape)}`
  checkLabels('crossEntropy', input, target, probabilities)
  if (input.shape.length === 1) return ofOneRow(crossEntropy, input, target, options)
  if (target.dtype === 'f32') return softTargets(input, target, options)
  boundClasses('crossEntropy', target, input.shape[1], options)
  const isPlain =
    input.shape.length === 2 && reduction === 'mean' && !weight && labelSmoothing === 0
  if (!isPlain) return classLoss('crossEntropy', true, input, target, options)
  const loss = emit(crossEntropyOp, [input, target], { count: count ?? null, ignoreIndex })
  return meanOver(loss, {
    rows: input.shape[0],
    count: count ?? null,
    classes: { target: target.value, ignoreIndex },
  })
}

/** Cross entropy against probabilities: -sum over classes of weight target log softmax(input), a mean over rows. */
function softTargets(input: Tensor, target: Tensor, options: CrossEntropyOptions): Tensor {
  const { weight, ignoreIndex, labelSmoothing = 0 } = options
  refuseBroadcast('crossEntropy', input, target)
  if ((ignoreIndex ?? ignoredClass) !== ignoredClass) {
    throw new ShapeError(
      'shape.unsupported',
      'crossEntropy: ignoreIndex needs class indices as targets, got probabilities. Remove it.',
    )
  }
  const classes = input.shape[1]
  const smoothed =
    labelSmoothing === 0 ? target : target.mul(1 - labelSmoothing).add(labelSmoothing / classes)
  const weighted = weight
    ? smoothed.mul(weight.reshape([-1, ...input.shape.slice(2).map(() => 1)]))
    : smoothed
  const losses = input.logSoftmax(1).mul(weighted).sum(1).neg()
  return reduce(losses, options)
}

/** Returns -weight[target] input[target] for log-probabilities. shape: as `crossEntropy`; cost: as its general form. */
export function nllLoss(input: Tensor, target: Tensor, options: ClassLossOptions = {}): Tensor {
  checkLoss('nllLoss', options, classOptions)
  checkLabels('nllLoss', input, target)
  if (input.shape.length === 1) return ofOneRow(nllLoss, input, target, options)
  boundClasses('nllLoss', target, input.shape[1], options)
  return classLoss('nllLoss', false, input, target, options)
}

/** A loss of [C] is that of a batch of one. shape: -> [] */
const ofOneRow = <Options>(
  loss: (input: Tensor, target: Tensor, options?: Options) => Tensor,
  input: Tensor,
  target: Tensor,
  options: Options,
): Tensor => loss(input.unsqueeze(0), target.unsqueeze(0), options).reshape([])

/**
 * Returns, for each k, the percentage of rows whose target is among the k largest outputs; with `count`, of the rows that count.
 *
 * shape: output [N, C], target [N] of i32 -> [] for each k; `count` as for `crossEntropy`. 0 if no row counts.
 * order: of equal outputs the one of the lower class is larger. errors: `shape.unsupported` for a k that is not from 1 to C.
 */
export function accuracy(
  output: Tensor,
  target: Tensor,
  options: { topk?: number | readonly number[]; count?: ScalarSlot } = {},
): Tensor[] {
  const { topk = [1], count } = checkOptions('accuracy', options, { topk: true, count: true })
  mustBeTensor('accuracy', { output, target })
  requireScores('accuracy', 'outputs', output, target)
  mustCount('accuracy', count)
  const [rows, classes] = output.shape
  const all = count && countedRows(rows, count)
  return [topk].flat().map((k) => {
    if (!(Number.isInteger(k) && k >= 1 && k <= classes)) {
      throw new ShapeError(
        'shape.unsupported',
        `accuracy: topk must be from 1 to the number of classes, ${classes}, got ${quoted(k)}. Leave it out, or choose a smaller one.`,
      )
    }
    const attrs = { k, count: count ?? null }
    const correct = emit(topKCorrect, [output, target], attrs, 'accuracy')
    return all ? correct.mul(100).div(all) : correct.mul(100 / Math.max(1, rows))
  })
}
