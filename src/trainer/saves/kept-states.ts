import * as v from 'valibot'
import { load, type SavedState, save } from '../../data/saved-tree.ts'
import { CommittedStates } from '../../ddp/committed/committed-states.ts'
import { areLimits, type LeftOutRanks, type Limits } from '../../ddp/hooks/left-out.ts'
import type { Module, StateDict } from '../../nn/module.ts'
import type { GradScaler, GradScalerState } from '../../optim/grad-scaler.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { OptimizerStateDict } from '../../optim/state-dict.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { DataError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import type { RunRecord } from '../watch/run-events.ts'
import { type RunLogFile, runLogIn } from '../watch/run-log.ts'

/** How far a run has come. */
export interface Progress {
  /** Steps done. */
  readonly step: number
  /** Samples that this rank trained on. */
  readonly samples: number
  readonly loss: number
  /** Of the last evaluation; NaN before the first. */
  readonly value: number
  /** Of all evaluations so far. */
  readonly best: number
}

/** A run at some step, on the host: all that it takes to continue from there on any ranks, and on the same ranks bit for bit. */
export interface KeptState {
  readonly progress: Progress
  readonly model: StateDict
  readonly optimizer: OptimizerStateDict
  /** Of the loss scale, where there is one. */
  readonly scaler: GradScalerState | undefined
  /** Of gradients, where not all ranks' count. */
  readonly limits?: Limits
  /** Of a run with `exact`, so far. */
  readonly log: RunLogFile | undefined
}

export const beginning: Progress = {
  step: 0,
  samples: 0,
  loss: Number.NaN,
  value: Number.NaN,
  best: Number.NaN,
}

/** Parts of a run that its next step changes, without its inputs. */
export interface RunParts {
  readonly model: Module
  readonly optimizer: Pick<Optimizer, 'stateDict' | 'loadStateDict'> & {
    readonly paramGroups: readonly { lr: number }[]
  }
  /** In float16. */
  readonly scaler?: Pick<GradScaler, 'stateDict' | 'loadStateDict'>
  /** Among strangers. */
  readonly limits?: Pick<LeftOutRanks, 'stateDict' | 'loadStateDict' | 'agree'>
}

/** A run whose step has been compiled. */
export interface CompiledRun {
  readonly group: ProcessGroup
  readonly parts: RunParts
  readonly record: RunRecord
  /** Training samples. */
  readonly samples: number
  /** Steps. */
  readonly perEpoch: number
}

/** Reads everything that the next step depends on. All ranks call it between the same steps: each gets the whole. errors: the group's. */
export async function keepState(
  { model, optimizer, scaler, limits }: RunParts,
  progress: Progress,
  log?: RunLogFile,
): Promise<KeptState> {
  return {
    progress,
    model: await model.stateDict(),
    optimizer: await optimizer.stateDict(),
    scaler: await scaler?.stateDict(),
    ...(limits && { limits: limits.stateDict() }),
    log,
  }
}

/** Puts a kept state into the parts of a run whose step has been compiled. */
export async function restoreState(
  { model, optimizer, scaler, limits }: RunParts,
  kept: KeptState,
): Promise<void> {
  for (const buffer of model.buffers()) await buffer.prepareLoad?.()
  model.loadStateDict(kept.model)
  optimizer.loadStateDict(kept.optimizer)
  if (kept.scaler) scaler?.loadStateDict(kept.scaler)
  if (kept.limits) limits?.loadStateDict(kept.limits)
}

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** NaN and Infinity, too. */
const number = v.custom<number>((value) => typeof value === 'number', 'a number')
const progressSchema = v.object({ step: whole, loss: number, value: number, best: number })

/** A kept state as bytes, for a rank that lacks it. */
export const packState = (kept: KeptState): Uint8Array<ArrayBuffer> =>
  save(kept as unknown as SavedState)

/**
 * Unpacks what `packState` has packed, on a rank that has trained on no samples yet. What the parts of the run have of it, they check when they load it.
 *
 * errors: `data.malformed`.
 */
export function unpackState(bytes: Uint8Array<ArrayBuffer>): KeptState {
  const { progress, model, optimizer, scaler, limits, log } = load(bytes, 'the kept state')
  const known = v.safeParse(progressSchema, progress)
  const ownLog = runLogIn(log)
  const hasLimits = limits === undefined || areLimits(limits)
  const parts = scaler === undefined ? [model, optimizer] : [model, optimizer, scaler]
  if (!known.success || !parts.every(isRecord) || !hasLimits || (log !== undefined && !ownLog))
    throw new DataError(
      'data.malformed',
      'the kept state: expected the state of a run, as a rank sends it to one that lacks it, got another. Open the same version of the page on all ranks.',
    )
  const state = { model, optimizer, scaler, ...(limits && { limits }) } as unknown as Omit<
    KeptState,
    'progress' | 'log'
  >
  return { ...state, progress: { ...known.output, samples: 0 }, log: ownLog }
}

/** The state is kept on the host every so many steps, on all ranks the same, so that a lost device costs no more than these. */
export const keepEvery = 50

/** Ranks keep at the same steps, but one may be lost while another has just kept: then both still have the state before it. */
export const maxKept = 2

/** The states that a rank has kept. */
export class KeptStates extends CommittedStates<KeptState> {
  constructor() {
    const stepOf = ({ progress }: KeptState) => progress.step
    super({ label: 'the kept state', max: maxKept, stepOf, pack: packState, unpack: unpackState })
  }
}
