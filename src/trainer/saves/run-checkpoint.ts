import * as v from 'valibot'
import { getCheckpoint, putCheckpoint } from '../../data/checkpoint-folder.ts'
import type { FileFolder } from '../../data/file-store.ts'
import { type SavedState, save } from '../../data/saved-tree.ts'
import { readTogether, saveCheckpoint } from '../../ddp/checkpoint/checkpoint.ts'
import {
  type CheckpointState,
  readState,
  unpackCheckpoint,
} from '../../ddp/checkpoint/checkpoint-file.ts'
import { areLimits, type Limits } from '../../ddp/hooks/left-out.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { inWords } from '../../util/kind-of.ts'
import { aboutOf } from '../settings/about-run.ts'
import { keysWhere, type TrainConfig, totalStepsOf } from '../settings/config.ts'
import { type DemoMeta, learningRateOf } from '../settings/demo-meta.ts'
import type { RunRecord } from '../watch/run-events.ts'
import { type RunLogFile, runLogIn } from '../watch/run-log.ts'
import { readOfMost } from './commonest-state.ts'
import type { CompiledRun, Progress, RunParts } from './kept-states.ts'
import { linksSchema } from './links-schema.ts'
import type { ReadRun } from './save-requests.ts'
import { hashOfState } from './state-hash.ts'

/** Where a run's checkpoints are; rank 0 alone uses it, with `exact` each rank its own. */
export interface CheckpointPlace {
  folder(): Promise<FileFolder>
  /** A single file to resume from, whatever the folder has. */
  readonly file?: () => Promise<Blob>
  /** How many files stay, besides the best one. */
  readonly keepLast?: number
  /** Part of its files' names, which keeps them apart from other runs' in the same folder. */
  readonly run?: string
}

/** Of how many runs files stay in a folder that they share, the newest ones', besides those that a person wants. */
const keepRuns = 3

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** NaN, too. */
const number = v.custom<number>((value) => typeof value === 'number', 'a number')
const table = v.record(v.string(), v.unknown())

/** Where a run stands among the samples: what a sampler's state is to a loop over one. */
const cursorSchema = v.object({
  seed: whole,
  epoch: whole,
  /** Of that epoch, done. */
  steps: whole,
  samples: whole,
  batchSize: whole,
})

/** A record as far as this program reads it; files of earlier versions have a part of it. */
const recordSchema = v.looseObject({
  config: table,
  worldSize: v.optional(whole),
  shares: v.optional(v.array(whole)),
  bucketCapMb: v.optional(number),
  variants: v.optional(table),
  measured: v.optional(table),
  links: v.optional(linksSchema),
  adapters: v.optional(v.array(v.string())),
})

/** Values of the file besides the parts. */
const valuesSchema = v.looseObject({
  step: whole,
  epoch: whole,
  loss: number,
  // The last and the best evaluation, where the metric is the accuracy, and where it is another.
  accuracy: v.optional(number),
  bestAccuracy: v.optional(number),
  value: v.optional(number),
  best: v.optional(number),
  cursor: cursorSchema,
  record: recordSchema,
  limits: v.optional(v.custom<Limits>(areLimits)),
  log: v.optional(v.unknown()),
})
type Cursor = v.InferOutput<typeof cursorSchema>
type RunValues = v.InferOutput<typeof valuesSchema>

/** A saved run that this one continues from. */
export interface ResumedRun {
  readonly progress: Progress
  /** That it is in, from 0. */
  readonly epoch: number
  readonly record: RunRecord
  /** Of a run with `exact`, up to here. */
  readonly log: RunLogFile | undefined
  /** How many ranks have a file of this state, where they were asked. */
  readonly holders: number | undefined
  /** 0 where the checkpoint is of the run's last step. */
  readonly stepsLeft: number
  /** Puts its state into a model and an optimizer whose step has been compiled, the same on all ranks. */
  restore(parts: RunParts): Promise<void>
}

const isAccuracy = ({ metric }: DemoMeta) => metric.name === 'accuracy'

/** A run between two steps. */
export interface RunNow extends CompiledRun {
  readonly meta: DemoMeta
  readonly progress: Progress
  /** Of a run with `exact`. */
  readonly log: RunLogFile | undefined
}

function stateOf({
  meta,
  record,
  progress,
  parts,
  samples,
  perEpoch,
  log,
}: RunNow): CheckpointState {
  const { step, loss, value, best } = progress
  const { model, optimizer, scaler, limits } = parts
  const epoch = Math.floor(step / perEpoch)
  const { seed, batchSize } = record.config
  const cursor: Cursor = { seed, epoch, steps: step % perEpoch, samples, batchSize }
  const evaluated = isAccuracy(meta) ? { accuracy: value, bestAccuracy: best } : { value, best }
  const values = { step, epoch, loss, ...evaluated, cursor: { ...cursor } }
  const more = {
    record,
    ...(limits && { limits: limits.stateDict() }),
    ...(log && { log }),
  } as unknown as SavedState
  return { model, optimizer, scaler, ...values, ...more }
}

/** Saves a run between two steps. All ranks call it; returns the file's name. errors: those of `saveCheckpoint`. */
export async function saveRun(
  now: RunNow,
  place: CheckpointPlace,
  isBest: boolean,
): Promise<string> {
  const { group } = now
  return saveCheckpoint(stateOf(now), {
    processGroup: group,
    folder: group.rank === 0 ? await place.folder() : undefined,
    isBest,
    keepLast: place.keepLast,
  })
}

/** Reads what a checkpoint of a run between two steps has. All ranks call it. errors: the group's. */
export const readRun = (now: RunNow): Promise<SavedState> => readState(stateOf(now))

/** Writes what was read, on this rank alone; returns the file's name. errors: `data.*`, `file.unwritable`, the folder's. */
export async function writeRun(
  { step, isBest, score, state }: ReadRun,
  place: CheckpointPlace,
  isKept: boolean,
): Promise<string> {
  const { keepLast = 2, run } = place
  const { config } = (state as unknown as { readonly record: RunRecord }).record
  const { model, optimizer, scaler } = state
  const entry = await putCheckpoint(await place.folder(), save(state), {
    label: `step-${step}`,
    isBest,
    keepLast,
    ...(config.exact && { stateHash: hashOfState({ model, optimizer, scaler }) }),
    run,
    ...(run !== undefined && { keepRuns }),
    isKept,
    savedAtMs: Date.now(),
    about: aboutOf(config),
    ...(Number.isFinite(score) && { score: { on: config.data, value: score } }),
  })
  return entry.name
}

/**
 * Reads the saved run that `config.resume` names, on all ranks: from rank 0's place; with `exact` the latest is that of most ranks (`readOfMost`).
 *
 * errors: `data.missing` where there is none, `config.invalid` for one of other settings that decide what is trained; those of
 * `loadCheckpoint`.
 */
export async function resumeRun(
  group: ProcessGroup,
  config: TrainConfig,
  meta: DemoMeta,
  samples: number,
  place: CheckpointPlace,
): Promise<ResumedRun> {
  const isOfMost = config.exact && config.resume === 'latest' && !place.file && group.size > 1
  const shared = isOfMost ? await readOfMost(group, () => place.folder()) : undefined
  const file =
    shared?.file ??
    (await readTogether(group, async () => {
      if (!place.file) return getCheckpoint(await place.folder(), config.resume ?? 'latest')
      return new Uint8Array(await (await place.file()).arrayBuffer())
    }))
  if (!file) {
    throw new TabringError(
      'data.missing',
      'resume: the folder has no checkpoint. Start without resuming.',
    )
  }
  const checked = v.safeParse(valuesSchema, await unpackCheckpoint(file, {}, { strict: false }))
  if (!checked.success)
    throw new TabringError(
      'data.malformed',
      'resume: this file is no checkpoint of a run that this program has saved. Choose another file, or start without resuming.',
    )
  const values = checked.output
  refuseOther(values, config, samples)
  const { step, epoch, loss } = values
  const record = values.record as unknown as RunRecord
  const { value = Number.NaN, best = Number.NaN } = isAccuracy(meta)
    ? { value: values.accuracy, best: values.bestAccuracy }
    : values
  return {
    progress: { step, samples: 0, loss, value, best },
    epoch,
    record,
    log: runLogIn(values.log),
    holders: shared?.holders,
    stepsLeft: totalStepsOf(config, samples) - step,
    async restore({ model, optimizer, scaler, limits }) {
      const parts = { model, optimizer, ...(scaler && { scaler }) }
      // The run's own record says more of what differs.
      await unpackCheckpoint(file, parts, { onDifferences: () => undefined })
      if (values.limits) limits?.loadStateDict(values.limits)
    },
  }
}

/** Settings that files of earlier versions do not have, as they were then. */
const earlier = {
  demo: 'digits',
  precision: 'float32',
  partition: 'shuffled',
} as const satisfies Partial<TrainConfig>

/** errors: `config.invalid` for a run that cannot continue as this one. */
function refuseOther({ record, cursor, step }: RunValues, config: TrainConfig, samples: number) {
  const refuse = (name: string, saved: unknown, now: unknown) => {
    if (saved === now) return
    throw new TabringError(
      'config.invalid',
      `resume: ${name} must be ${inWords(saved)}, as in the saved run, got ${inWords(now)}. Use the settings of that run, or start without resuming.`,
    )
  }
  const saved: Readonly<Record<string, unknown>> = { ...earlier, ...record.config }
  for (const name of keysWhere(({ onResume }) => onResume === 'same'))
    refuse(name, saved[name], config[name])
  refuse('the number of training samples', cursor.samples, samples)
  const steps = totalStepsOf(config, samples)
  if (step <= steps) return
  throw new TabringError(
    'config.invalid',
    `resume: the checkpoint is of step ${step}, and this run ends at step ${steps}. Raise the epochs or steps to continue training.`,
  )
}

/**
 * Why a run's numbers are no longer bit for bit those that the saved run would have had: what differs of the records; empty where nothing
 * does. For rank 0, whose record is the one that was saved.
 */
export function differencesOf(meta: DemoMeta, saved: RunRecord, now: RunRecord): string[] {
  const differences: string[] = []
  const compare = (what: string, before: unknown, after: unknown, isShort = true) => {
    const [old, own] = [before, after].map((value) => JSON.stringify(value))
    if (old === own) return
    differences.push(isShort ? `${what} ${old}, now ${own}` : what)
  }
  const { exact: wasExact = false } = saved.config
  const { exact: isExact } = now.config
  const areExact = wasExact && isExact
  // Two exact runs have the same bits on any ranks.
  if (!areExact) compare('ranks', saved.worldSize, now.worldSize)
  compare('exact', wasExact, isExact)
  if (areExact) compare('virtual workers', saved.config.virtualWorkers, now.config.virtualWorkers)
  compare('learning rate', learningRateOf(saved.config, meta), learningRateOf(now.config, meta))
  compare('clipNorm', saved.config.clipNorm ?? 'none', now.config.clipNorm ?? 'none')
  // Files of earlier versions lack some.
  for (const name of ['data', 'parallel', 'strategy', 'trust', 'aggregation'] as const)
    if (name in saved.config) compare(name, saved.config[name], now.config[name])
  compare('adapters', [...new Set(saved.adapters)], [...new Set(now.adapters)])
  if (!areExact) compare('rows of each rank', saved.shares, now.shares)
  compare('buckets', saved.buckets, now.buckets, false)
  compare('kernels', saved.variants, now.variants, false)
  compare('measured kernels', saved.measured, now.measured, false)
  return differences
}
