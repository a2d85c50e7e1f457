import { type Batch, batchSizeOf, type FieldDTypes, padBatch } from '../../data/collate.ts'
import { checkDataset } from '../../data/datasets.ts'
import { DataLoader } from '../../data/loader/data-loader.ts'
import { type Dataset, isHostTensor, type Sample } from '../../data/samples.ts'
import { batchShares } from '../../data/shares.ts'
import { getProcessGroup, isInitialized } from '../../distributed/group/default-group.ts'
import { memberGroup } from '../../distributed/group/group-of.ts'
import { type CompileOptions, compile } from '../../graph/compile/compile.ts'
import { crossEntropy, sampleCount, topKCorrect } from '../../graph/functions/linear.ts'
import type { InputTypes } from '../../graph/plan/prepare.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { hashOf } from '../../graph/trace/settings-check.ts'
import { Tensor } from '../../graph/trace/tensor.ts'
import type { ScalarSlot } from '../../kernels/op.ts'
import type { Module } from '../../nn/module.ts'
import { checkModule } from '../../nn/module.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { clipped } from '../../util/clipped.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'
import { isSameList } from '../../util/is-same-list.ts'
import { hasNames, isOf, isTexts, kindOf } from '../../util/kind-of.ts'
import { checkArgument, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { formatShape, type HostDType, tensorType } from '../../util/shape.ts'
import { DistributedDataParallel } from '../data-parallel/data-parallel.ts'
import { addOverRanks, runAhead, type Sums } from './batch-sums.ts'

/**
 * Returns the sums of a batch, by name: tensors of one element, each a sum over the first `count` samples.
 *
 * `batch` has the fields of the samples. Losses take `{ reduction: 'sum', count }`, `topKCorrect` takes `{ count }`.
 */
export type BatchSums = (batch: Record<string, Tensor>, count: ScalarSlot) => Record<string, Tensor>

/** Options of `evaluate`. */
export interface EvaluateOptions<S = Sample> extends Pick<CompileOptions, 'device' | 'runtime'> {
  /** Sums to compute. Default, for samples `{ x, y }` with class labels: `loss`, the cross entropy, and `correct`, the number of samples whose label has the largest output. */
  batchSums?: BatchSums
  /** Number of samples in a batch. Default 64. */
  batchSize?: number
  /**
   * Ranks that divide the samples among them. Default: those of the model's DistributedDataParallel; of a model that is split over ranks, those
   * of its `replicate`; else of `initProcessGroup`, else this one alone.
   */
  processGroup?: CollectiveGroup
  /** As in `compile`: the ranks that have parts of the model. */
  group?: CollectiveGroup
  /** As in `DataLoader`. */
  numWorkers?: number
  /** As in `DataLoader`. */
  worker?: () => Worker
  /** As in `DataLoader`. */
  collateFn?: (samples: S[]) => Batch
  /** As in `DataLoader`. */
  dtypes?: FieldDTypes
}

/** Result of `evaluate`. */
export interface EvaluateResult {
  /** Number of samples, each counted once. */
  readonly count: number
  /** Sums over all samples, by name. */
  readonly sums: Readonly<Record<string, number>>
  /** The sums divided by the count; `means.correct` is the accuracy. */
  readonly means: Readonly<Record<string, number>>
}

/**
 * Evaluates a model on all samples of a data set, each counted once; returns the same result on all ranks, for any number of ranks.
 *
 * The model runs in evaluation mode, without gradients. Each rank takes whole batches, at most one more than the others, and adds up sums, not
 * means. (PyTorch's DistributedSampler repeats samples until all ranks have the same number, which counts some twice.) All ranks call it with the
 * same data set and options, and have the same parameters.
 * order: sums are added batch by batch, so they have the same bits on any number of ranks with the same kind of adapter.
 * cost: compiles forward, whose pipelines the device caches for the next call; an exchange of the sums, and before it one of the data set's
 * length and the labels of 6 samples.
 * errors: those of the model, the data set and `batchSums`, on all ranks; `graph.misuse` if `batchSums` returns anything but sums;
 * `peer.mismatch` for ranks with other data sets or batch sizes; the group's.
 */
export async function evaluate<S = Sample>(
  model: Module,
  dataset: Dataset<S>,
  options: EvaluateOptions<S> = {},
): Promise<EvaluateResult> {
  const {
    batchSums = classifying(model),
    batchSize = 64,
    processGroup,
    group: parts,
    device,
    runtime,
    ...loading
  } = checkOptions('evaluate', options, {
    batchSums: true,
    batchSize: true,
    processGroup: 'group',
    group: 'group',
    device: true,
    runtime: true,
    numWorkers: true,
    worker: true,
    collateFn: true,
    dtypes: true,
  })
  checkModule('evaluate', model, 'model')
  checkArgument('evaluate', 'batchSums', batchSums, typeof batchSums === 'function', 'a function')
  checkDataset('evaluate', dataset)
  checkNumber('evaluate', 'batchSize', batchSize, isCount, 'a whole number above 0')
  const { ranks: group, runsTogether } = divisionFor(model, processGroup)
  if (model instanceof DistributedDataParallel) await model.ready
  const count = dataset.length
  checkArgument('evaluate', 'dataset', dataset, count > 0, 'a data set of one sample or more')
  if (group) await compareDatasets(group, dataset, batchSize)
  const own = shareOf(count, batchSize, group)
  const loader = new DataLoader<S, Batch>(dataset, { ...loading, batchSize, sampler: own })
  let compiling: Promise<StepProgram> | undefined
  const run = async (batch: Batch, samples: number): Promise<Sums> => {
    const full = padBatch(batch, batchSize)
    // Once, though several batches are under way.
    compiling ??= compile(
      (given) => {
        const sums = model.evaluating(() => batchSums(given, sampleCount()))
        checkSums(sums)
        return sums
      },
      typesOf(full),
      {
        ...(device !== undefined && { device }),
        ...(runtime !== undefined && { runtime }),
        ...(parts && { group: parts }),
      },
    )
    // Of several ranks each needs the inputs that its devices read, and has the sums that they compute.
    const program = await compiling
    const { inputs } = program.prepared
    const needed = Object.entries(full).filter(([name]) => Object.hasOwn(inputs, name))
    const outputs = await program.run(Object.fromEntries(needed), { count: samples })
    return Object.fromEntries(Object.entries(outputs).map(([name, [value]]) => [name, value]))
  }
  const work = async () => {
    const sums = await runAhead(loader, (batch) => run(batch, batchSizeOf(batch)))
    const max = Math.ceil(Math.ceil(count / batchSize) / (group?.size ?? 1))
    if (runsTogether && sums.length < max) {
      // Another rank gathers parameters for one batch more.
      const one = new DataLoader<S, Batch>(dataset, { ...loading, batchSize, sampler: [0] })
      for await (const batch of one) await run(batch, 0)
      one.close()
    }
    return sums
  }
  try {
    const sums = await addOverRanks(
      async () => (parts ? [await addOverRanks(work, parts)] : work()),
      group,
    )
    const means = Object.entries(sums).map(([name, sum]) => [name, sum / count])
    return { count, sums, means: Object.fromEntries(means) }
  } finally {
    loader.close()
    await compiling?.then(
      (program) => program.destroy(),
      () => undefined,
    )
  }
}

/** errors: `peer.mismatch` for ranks that each pass their own part of a data set, or other batch sizes: samples would be left out. */
async function compareDatasets<S>(
  group: CollectiveGroup,
  dataset: Dataset<S>,
  batchSize: number,
): Promise<void> {
  if (group.size === 1) return
  const own = [`batchSize ${batchSize}`, `${dataset.length} samples`, await labelsOf(dataset)]
  const received = await gatherJson('evaluate', group, own, isTexts)
  // A rank that cannot read a sample says so when its own are read, or need not.
  const isRead = received.every(([, , labels]) => labels)
  const compared = isRead ? received : received.map((one) => one.slice(0, 2))
  const difference = firstDifference(compared, 'nothing', group.ranks)
  if (!difference) return
  throw new PeerError(
    'peer.mismatch',
    `evaluate: ranks disagree about the data set: ${difference.text}. Pass the whole data set and the same batchSize on all ranks: evaluate itself divides the samples among them.`,
  )
}

/** How many samples ranks compare. */
const comparedSamples = 6

/**
 * Labels of a few samples, first to last, in words; empty if they cannot be read, or are others each time.
 *
 * Whole numbers alone: browsers decode the same image to pixels that differ by a level or two.
 */
async function labelsOf<S>(dataset: Dataset<S>): Promise<string> {
  try {
    const words: number[] = []
    const read = async (index: number): Promise<number[]> => {
      const own: number[] = []
      const visit = (value: unknown): void => {
        if (Number.isInteger(value)) own.push(value as number)
        else if (isOf(value, Int32Array)) own.push(...value)
        else if (Array.isArray(value)) value.forEach(visit)
        else if (hasNames(value)) for (const key of Object.keys(value).sort()) visit(value[key])
      }
      visit(await dataset.get(index, { seed: 0, epoch: 0, index }))
      return own
    }
    const last = dataset.length - 1
    const spread = Array.from({ length: comparedSamples }, (_, i) =>
      Math.round((i * last) / (comparedSamples - 1)),
    )
    for (const index of new Set(spread)) {
      const own = await read(index)
      if (!isSameList(own, await read(index))) return ''
      words.push(...own)
    }
    return `labels or other whole numbers (hash ${hashOf(words).toString(16)})`
  } catch {
    return ''
  }
}

interface Division {
  /** The ranks that divide the samples among them. */
  readonly ranks: CollectiveGroup | undefined
  /** True if they must run equally often: each run gathers parameters from all. */
  readonly runsTogether: boolean
}

function divisionFor(model: Module, given: CollectiveGroup | undefined): Division {
  const parameters = model.parameters()
  // Of `fullyShard`, every rank has its own samples; of `parallelizeModule` and pipelines only replicas have.
  const isSharded = ({ sharedBy, replicatedBy, meanOver }: Parameter) =>
    sharedBy !== undefined && meanOver > (replicatedBy?.size ?? 1)
  const runsTogether = parameters.some(isSharded)
  if (given) return { ranks: memberGroup('evaluate', given), runsTogether }
  if (model instanceof DistributedDataParallel) return { ranks: model.processGroup, runsTogether }
  const isSplit = parameters.some(
    (parameter) =>
      parameter.device?.rank !== undefined || (parameter.sharedBy && !isSharded(parameter)),
  )
  if (isSplit) {
    const [replicas] = parameters.flatMap(
      (parameter) => parameter.replicatedBy ?? (isSharded(parameter) ? parameter.sharedBy! : []),
    )
    return { ranks: replicas as CollectiveGroup | undefined, runsTogether }
  }
  return { ranks: isInitialized() ? getProcessGroup() : undefined, runsTogether }
}

/** The samples of a rank's batches: neighbours, so that all ranks' follow each other in the order of ranks. */
function shareOf(count: number, batchSize: number, group: CollectiveGroup | undefined) {
  const batches = batchShares(Math.ceil(count / batchSize), group?.size ?? 1)[group?.rank ?? 0]
  const begin = Math.min(count, batchSize * batches.offset)
  const end = Math.min(count, batchSize * (batches.offset + batches.rows))
  return {
    length: end - begin,
    *[Symbol.iterator]() {
      for (let index = begin; index < end; index++) yield index
    },
  }
}

/** errors: `graph.misuse` unless these are sums by name. */
function checkSums(sums: Record<string, Tensor>): void {
  const refuse = (what: string, got: string, remedy: string) =>
    new TabringError('graph.misuse', `evaluate: ${what}, got ${got}. ${remedy}`)
  if (!hasNames(sums) || sums instanceof Tensor)
    throw refuse(
      'batchSums must return sums by name',
      kindOf(sums),
      'Write ({ x, y }, count) => ({ loss: … }).',
    )
  for (const [name, sum] of Object.entries(sums)) {
    if (sum instanceof Tensor && sum.count === 1 && sum.dtype === 'f32') continue
    throw refuse(
      `"${clipped(name)}" must be a sum, an f32 tensor of one element`,
      sum instanceof Tensor ? `${sum.dtype}${formatShape(sum.shape)}` : kindOf(sum),
      'Sum over the counted samples.',
    )
  }
}

function typesOf(batch: Batch): InputTypes {
  const dtypeOf = (data: unknown): HostDType => {
    if (isOf(data, Int32Array)) return 'i32'
    return isOf(data, Uint32Array) ? 'u32' : 'f32'
  }
  return Object.fromEntries(
    Object.entries(batch).flatMap(([name, value]) =>
      isHostTensor(value) ? [[name, tensorType(value.shape, dtypeOf(value.data))]] : [],
    ),
  )
}

const classifying =
  (model: Module): BatchSums =>
  ({ x, y }, count) => {
    if (!x || !y) {
      throw new TabringError(
        'graph.misuse',
        'evaluate: the samples have no fields x and y. Pass batchSums, which returns the sums of a batch.',
      )
    }
    const out = model.forward(x)
    return {
      loss: crossEntropy(out, y, { reduction: 'sum', count }),
      correct: topKCorrect(out, y, 1, { count }),
    }
  }
