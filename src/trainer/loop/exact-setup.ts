import type { MeasuredTime } from '../../ddp/exact/assignment.ts'
import type { Audits } from '../../ddp/exact/audit.ts'
import { mustFit } from '../../ddp/exact/check-supported.ts'
import { ExactStep } from '../../ddp/exact/exact-step.ts'
import { LossScale } from '../../ddp/exact/loss-scale.ts'
import type { ExactRanks } from '../../ddp/exact/replays.ts'
import { manualSeed } from '../../nn/init.ts'
import { ExactOptimizer } from '../../optim/exact/exact-optimizer.ts'
import { Evaluation } from '../evaluate/evaluate.ts'
import { batchArrays, ShareBatches } from '../evaluate/share-batches.ts'
import { VirtualWorkers } from '../evaluate/virtual-workers.ts'
import { learningRateOf } from '../settings/demo-meta.ts'
import { evictionForGradients, gradientsDiffer } from './eviction.ts'
import type { PlaceInGroup, RankSetup, RankSetupOptions } from './rank-setup.ts'
import { replicated } from './shared-model.ts'
import { forwardOf, randomScalarsFor } from './training-step.ts'

interface TrainingRanks extends ExactRanks {
  readonly workers: VirtualWorkers
}

/** `setUpRank` for a run with `exact`: nothing that is compiled depends on the group. errors: `config.invalid` for a model that it cannot train; `gpu.*`. */
export async function setUpExact(options: RankSetupOptions): Promise<RankSetup> {
  const { config, task, data, runtime, onPhase } = options
  const { virtualWorkers, clipNorm, precision } = config
  const { count: samples } = data.train
  manualSeed(config.seed)
  const model = task.model(config, data)
  mustFit(model)
  const lr = learningRateOf(config, task.meta)
  const optimizer = new ExactOptimizer(
    model.parameters(),
    config.optimizer === 'adamw'
      ? { kind: 'adamw', lr, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0.01 }
      : { kind: 'sgd', lr, momentum: 0.9 },
  )
  const ranksIn = ({ group, stepsDone, onEvent }: PlaceInGroup): TrainingRanks => {
    const { rank, size } = group
    const workers = new VirtualWorkers(config, samples, rank, size)
    const onAssigned = (step: number) =>
      onEvent({ event: 'assigned', step, samples: workers.samples, rank })
    return { group, workers, stepsDone, onAssigned }
  }
  const first = ranksIn(options)
  const { rows } = first.workers
  const isHalf = precision === 'float16'
  const lossScale = isHalf ? new LossScale(rows * virtualWorkers) : undefined
  const typesOf = (count: number) => task.types(config, data, count)
  const types = typesOf(rows)

  onPhase('compile')
  const forward = forwardOf(task, { model }, isHalf)
  // As for any run that is not tuned.
  runtime.variants = {}
  const free = () => model.destroy()
  const { bucketCapMb } = config
  const own = {
    ...{ runtime, optimizer, virtualWorkers, clipNorm, lossScale, forward, types },
    bucketElements: bucketCapMb && Math.max(1, Math.floor(bucketCapMb * 2 ** 18)),
  }
  const step = await ExactStep.create({ ...own, ...first }).catch((error) => {
    free()
    throw error
  })
  const evaluation = new Evaluation({
    ...{ runtime, model, task, config, data },
    ranks: options.group,
    trainingRows: rows,
  })
  /** Of this rank, in all groups so far. */
  let took: MeasuredTime | undefined
  /** Of other ranks, one at a time. */
  const auditIn = (
    { group, isElastic, onEvent }: PlaceInGroup,
    workers: VirtualWorkers,
  ): Audits => {
    const of = { first: 0, count: 0 }
    const batches = new ShareBatches(task, data, workers.drawsOf(of), typesOf)
    return {
      batchOf(stepsDone, first, count) {
        Object.assign(of, { first, count })
        const { count: own, firstRow, inputs } = batches.after(stepsDone)
        const scalars = { count: own, ...randomScalarsFor(step, stepsDone, firstRow) }
        return { inputs, scalars }
      },
      errorOf: (ranks, text, hasMajority) =>
        isElastic && hasMajority ? evictionForGradients(text, ranks) : gradientsDiffer(text),
      onChanged: (step, text) =>
        onEvent({ event: 'unlike', step, ranks: [], text, isLasting: true, rank: group.rank }),
    }
  }
  const setupIn = (place: PlaceInGroup, { workers }: TrainingRanks): RankSetup => ({
    runtime,
    shared: replicated(model, model, place.group),
    replicas: place.group,
    draws: workers.draws,
    batches: new ShareBatches(task, data, workers.draws, typesOf),
    rowsOf: Array.from({ length: place.group.size }, () => rows),
    buckets: optimizer.buckets,
    parts: { model, optimizer, scaler: lossScale },
    step,
    evaluation,
    check: place.group.size > 1 ? step : undefined,
    async prove() {
      const inputs = batchArrays(types)
      const { firstSamples } = workers
      task.fill(data, 'train', firstSamples, inputs)
      const count = firstSamples.length
      const proof = await step.prove(inputs, { ...randomScalarsFor(step, 0, 0), count })
      if (step.proofUs !== undefined) took ??= { us: step.proofUs, isOfProof: true }
      return proof
    },
    took: () => took,
    assignment(received, isAudited) {
      workers.assignment.begin(received)
      if (isAudited) step.auditBy(auditIn(place, workers))
      return workers.samples
    },
    findNotFinite: async () => undefined,
    enter(next) {
      const { ownUs } = workers
      if (ownUs !== undefined) took = { us: ownUs, isOfProof: false }
      const ranks = ranksIn(next)
      step.enter(ranks)
      evaluation.ranks = next.group
      return setupIn(next, ranks)
    },
    destroy() {
      step.destroy()
      evaluation.destroy()
      free()
    },
  })
  return setupIn(options, first)
}
