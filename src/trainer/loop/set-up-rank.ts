import { firstBucketBytesFor } from '../../ddp/data-parallel/bucket-size.ts'
import { DistributedDataParallel } from '../../ddp/data-parallel/data-parallel.ts'
import { ReplicaCheck } from '../../ddp/hashes/replica-check.ts'
import { type LeftOut, mayLeaveOut } from '../../ddp/hooks/left-out.ts'
import { compile } from '../../graph/compile/compile.ts'
import { prepare } from '../../graph/plan/prepare.ts'
import { manualSeed } from '../../nn/init.ts'
import { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { Evaluation } from '../evaluate/evaluate.ts'
import { planDraws, ShareBatches } from '../evaluate/share-batches.ts'
import { pipelinesOf } from '../settings/parallel.ts'
import type { RankSetup, RankSetupOptions } from './rank-setup.ts'
import { settleVariants } from './settle-variants.ts'
import { replicated, type SharedModel } from './shared-model.ts'
import { makeStep } from './training-step.ts'

/** All ranks of the group call it. errors: `config.invalid`, `gpu.*`, those of the group. */
export async function setUpRank(options: RankSetupOptions): Promise<RankSetup> {
  const { config, task, data, runtime, group, onEvent, onPhase } = options
  const { rank } = group
  if (config.exact) {
    const { setUpExact } = await loadPart('exact training', () => import('./exact-setup.ts'))
    return setUpExact(options)
  }
  const isAlone = config.strategy === 'alone'
  const replicas = isAlone && group.size > 1 ? aloneIn(group) : group

  onPhase('broadcast')
  const shared = await shareModel(options, replicas)
  if (shared.held) onEvent({ event: 'divided', held: shared.held, rank })
  const { dataRanks, parts: partRanks } = shared
  // With the strategy `alone` each has a share of the batch, too.
  const at = isAlone ? group : dataRanks
  const draws = planDraws(config, data.train.count, at.rank, at.size)
  const rowsOf = draws.shares.map(({ rows }) => shared.rowsFor?.(rows) ?? rows)
  const ownRows = rowsOf[at.rank]
  const typesOf = (rows: number) => task.types(config, data, rows)
  const types = typesOf(ownRows)

  onPhase('compile')
  const { optimizer, scaler, run: stepFunction } = await makeStep(task, shared, config)
  runtime.variants = await settleVariants(
    options,
    rowsOf,
    (rows) => prepare(runtime, stepFunction, typesOf(rows)),
    options.variants,
  )
  const made: { destroy(): void }[] = []
  const destroy = () => {
    for (const one of [...made.splice(0), ...optimizer.buckets]) one.destroy()
  }
  try {
    const ofParts = partRanks && { group: partRanks }
    const step = await compile(stepFunction, types, { runtime, ...ofParts, endsGroups: false })
    made.push(step)
    const evaluation = new Evaluation({
      runtime,
      model: shared.model,
      task,
      config,
      data,
      ranks: isAlone ? replicas : dataRanks,
      ...(partRanks && { parts: partRanks }),
      trainingRows: ownRows,
      ...(!shared.isWhole && !partRanks && { rowsOf }),
    })
    made.push(evaluation)
    let check: ReplicaCheck | undefined
    if (replicas.size > 1 && shared.isWhole) {
      check = await ReplicaCheck.create(runtime, optimizer.buckets)
      made.push(check)
    }
    return {
      runtime,
      shared,
      replicas,
      draws,
      batches: new ShareBatches(task, data, draws, () => types),
      rowsOf,
      buckets: optimizer.buckets,
      parts: { model: shared.module, optimizer, scaler, limits: shared.limits },
      step,
      evaluation,
      check,
      findNotFinite: async (inputs, scalars) => {
        // One rank alone has a part of the parameters.
        if (!shared.isWhole) return undefined
        const { detectAnomaly } = await loadPart(
          'the search for the op that gave NaN',
          () => import('../../graph/compile/detect-anomaly.ts'),
        )
        try {
          await detectAnomaly(runtime, stepFunction, types, inputs, scalars, {
            checkInfinite: true,
          })
        } catch (error) {
          if (error instanceof TabringError && error.code === 'train.nan') return error.message
          throw error
        }
        return undefined
      },
      destroy,
    }
  } catch (error) {
    destroy()
    throw error
  }
}

/** A group of this rank alone, for what it does not share with the others. */
export const aloneIn = ({ epoch, env }: Pick<ProcessGroup, 'epoch' | 'env'>): ProcessGroup =>
  new ProcessGroup({ rank: 0, size: 1, epoch, links: new Map(), env })

/** Makes the task's model, and divides it over the ranks where the settings say so. */
async function shareModel(
  { config, task, data, runtime, bucketCapMb, onEvent }: RankSetupOptions,
  replicas: ProcessGroup,
): Promise<SharedModel> {
  manualSeed(config.seed)
  const model = task.model(config, data)
  if (config.parallel === 'fsdp' && replicas.size > 1) {
    const { sharded } = await loadPart('sharding', () => import('./sharded-model.ts'))
    return sharded(model, replicas)
  }
  if (pipelinesOf(config.parallel)) {
    const { pipelined } = await loadPart('pipelines', () => import('./pipelined-model.ts'))
    return pipelined(task, model, replicas, config.parallel, runtime)
  }
  const { aggregation } = config
  const trust = config.trust === 'strangers' ? 'strangers' : 'members'
  const ddp = new DistributedDataParallel(model, {
    processGroup: replicas,
    // Buckets of another size would give other bits.
    bucketCapMb: config.bucketCapMb ?? bucketCapMb,
    ...(config.bucketCapMb === undefined && {
      firstBucketMb: firstBucketBytesFor(bucketCapMb * 2 ** 20) / 2 ** 20,
    }),
    aggregation,
    trust,
    ...(mayLeaveOut({ aggregation, trust }) && {
      onLeftOut: (found: LeftOut) => onEvent({ event: 'leftOut', ...found, rank: replicas.rank }),
    }),
  })
  await ddp.ready
  return replicated(ddp, ddp.module, ddp.processGroup, ddp.leftOutRanks)
}
