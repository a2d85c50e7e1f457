import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { canBeSaved, type TrainConfig } from '../settings/config.ts'
import { scoreOf } from '../settings/demo-meta.ts'
import type { Task } from '../settings/task.ts'
import type { RunEvent, RunRecord } from '../watch/run-events.ts'
import type { RunLog, RunLogFile } from '../watch/run-log.ts'
import type { Changes } from './changes.ts'
import {
  beginning,
  type CompiledRun,
  KeptStates,
  keepState,
  type Progress,
  restoreState,
} from './kept-states.ts'
import type { CheckpointPlace, ResumedRun } from './run-checkpoint.ts'
import { type SavedFile, Saves } from './save-requests.ts'

export interface RunStatesOptions {
  readonly config: TrainConfig
  readonly task: Task
  readonly onEvent: (event: RunEvent) => void
  /** Where checkpoints go and come from, if `config` asks for some. */
  readonly checkpoints?: CheckpointPlace
}

export interface SaveOptions {
  readonly isBest?: boolean
  /** The settings or the course of the run say so, nobody asked for it. */
  readonly isDue?: boolean
  /** No step follows soon: where `canBeSaved`, what was read can be saved until one does. */
  readonly isHeld: boolean
}

/** The states of a run on this rank: those that it keeps for the ranks, saves as checkpoints, and resumes from. */
export class RunStates {
  readonly kept = new KeptStates()
  readonly saves: Saves
  readonly #options: RunStatesOptions
  readonly #log: RunLog
  readonly #changes: Changes
  /** The checkpoint that this run continues from. */
  #resumed: ResumedRun | undefined
  #hasReported = false
  /** Of the run that this one continues to the bit. */
  #logBefore: RunLogFile | undefined
  #run: CompiledRun | undefined
  #rank = 0

  constructor(options: RunStatesOptions, log: RunLog, changes: Changes) {
    this.#options = options
    this.#changes = changes
    this.#log = log
    this.saves = new Saves({
      write: async (run, isKept) => {
        const { writeRun } = await checkpointing()
        return writeRun(run, this.#place, isKept)
      },
      report: (event) => options.onEvent({ ...event, rank: this.#rank }),
      now: () => performance.now(),
    })
  }

  /** Record of what decides the run's bits, once it is settled. */
  get record(): RunRecord | undefined {
    return this.#run?.record
  }

  /** Where the next step begins: at the newest kept state, at the checkpoint, or at the very beginning. */
  get start(): Progress {
    return this.kept.newest?.progress ?? this.#resumed?.progress ?? beginning
  }

  /** Of the run that this one continues from, if that had as many ranks. Files of earlier versions have only a part of it. */
  savedRecord(size: number): Partial<RunRecord> | undefined {
    const saved = this.#resumed?.record
    return saved?.worldSize === size ? saved : undefined
  }

  /** Reads the checkpoint that `config` names, unless a state is kept. All ranks call it. errors: those of `resumeRun`. */
  async resume(group: ProcessGroup, samples: number): Promise<void> {
    const { config, task } = this.#options
    this.#rank = group.rank
    if (!config.resume || this.kept.newest) return
    const { resumeRun } = await checkpointing()
    this.#resumed = await resumeRun(group, config, task.meta, samples, this.#place)
  }

  /** Loads beside the compilation what saves need: before the first step, and not between two. errors: `part.*`. */
  async prepare(): Promise<void> {
    const { config } = this.#options
    if (config.checkpointEvery || canBeSaved(config)) await checkpointing()
  }

  /**
   * Puts the newest kept state or the checkpoint into the parts of `run`, and begins the log there; reports the checkpoint, once.
   * `differenceFrom`: how the run of a log began differently.
   */
  async restore(
    run: CompiledRun,
    differenceFrom: (log: RunLogFile | undefined) => string | undefined,
  ): Promise<void> {
    this.#run = run
    const { newest } = this.kept
    if (newest) await restoreState(run.parts, newest)
    else if (this.#resumed) {
      await this.#resumed.restore(run.parts)
      if (!this.#hasReported) await this.#report(this.#resumed, run.record, differenceFrom)
    }
    this.#log.begin(newest ? newest.log : this.#logBefore)
  }

  /** Keeps the state of a checkpoint, as the one from which the ranks begin. */
  async keepResumed(): Promise<void> {
    if (this.#resumed && !this.kept.newest) await this.keep(this.start)
  }

  /** Keeps the state where the run could continue from. All ranks call it between the same steps. */
  async keep(progress: Progress): Promise<void> {
    // Ranks may differ in what they know of the next step.
    this.#changes.useRate(this.#run!.parts.optimizer, progress.step)
    this.kept.add(await keepState(this.#run!.parts, progress, this.#logFile))
  }

  /** Saves a checkpoint, or where `canBeSaved` reads what one would have. All ranks call it between the same steps. */
  async save(
    progress: Progress,
    { isBest = false, isDue = false, isHeld }: SaveOptions,
  ): Promise<void> {
    const { config, task, onEvent } = this.#options
    const run = this.#run!
    const beganMs = performance.now()
    const { step } = progress
    const { meta } = task
    const { rank } = run.group
    const { readRun, saveRun } = await checkpointing()
    // It continues with the next step's settings.
    this.#changes.useRate(run.parts.optimizer, step + 1)
    const record = { ...run.record, config: this.#changes.configAt(step + 1) }
    const now = { ...run, record, meta, progress, log: this.#logFile }
    if (canBeSaved(config)) {
      const state = await readRun(now)
      // An exact run's copies on other ranks count too.
      const isDueHere = config.exact ? config.saves === 'auto' : isDue && rank === 0
      const score = scoreOf(meta.metric, progress.value)
      const read = { step, isBest, score, state }
      await this.saves.take(read, { beganMs, isDue: isDueHere, isHeld })
      return
    }
    try {
      const name = await saveRun(now, this.#place, isBest)
      onEvent({ event: 'checkpoint', step, name, isBest, rank })
    } catch (error) {
      // A full disk or a folder that is gone does not end the run: all ranks have this error, the next save may succeed, and without the last one the model is there.
      if (!(error instanceof TabringError && /^(file|data)\./.test(error.code))) throw error
      onEvent({ event: 'unsaved', step, code: error.code, text: error.message, rank })
    }
  }

  /** From now on rank 0 saves by the clock, if it is to. */
  startClock(): void {
    const { config } = this.#options
    const isByClock = config.saves === 'auto' && config.checkpointEvery === undefined
    if (canBeSaved(config) && isByClock && this.#rank === 0) this.saves.startClock()
  }

  /** As `Trainer.save`. */
  async ask(): Promise<SavedFile> {
    if (canBeSaved(this.#options.config)) return this.saves.ask()
    throw new TabringError(
      'config.invalid',
      'save: this run cannot be saved: it needs one model and the setting saves. Start it with them.',
    )
  }

  get #place(): CheckpointPlace {
    const { checkpoints } = this.#options
    if (checkpoints) return checkpoints
    throw new TabringError(
      'config.invalid',
      'checkpoints: this run has nowhere to store them. Omit checkpointEvery and resume.',
    )
  }

  /** The part of the log in a kept state and a checkpoint. */
  get #logFile(): RunLogFile | undefined {
    const { config } = this.#options
    return config.exact ? this.#log.file(config, null) : undefined
  }

  async #report(
    { progress, record: saved, log, epoch, stepsLeft, holders }: ResumedRun,
    record: RunRecord,
    differenceFrom: (log: RunLogFile | undefined) => string | undefined,
  ): Promise<void> {
    this.#hasReported = true
    const { task, onEvent } = this.#options
    const { meta } = task
    const { step, best } = progress
    const accuracy = meta.metric.name === 'accuracy' ? { bestAccuracy: best } : {}
    const { differencesOf } = await checkpointing()
    const found = differencesOf(meta, saved, record)
    const other = differenceFrom(log)
    if (other) found.push(other)
    if (found.length === 0) this.#logBefore = log
    const rank = this.#rank
    // The saved record is rank 0's: others have kernels for rows of another number.
    const differences = rank === 0 ? found : []
    const held = holders === undefined ? {} : { holders }
    const facts = { step, epoch, best, ...accuracy, ...held, stepsLeft, differences }
    onEvent({ event: 'resumed', ...facts, rank })
  }
}

const checkpointing = () => loadPart('checkpoints', () => import('./run-checkpoint.ts'))
