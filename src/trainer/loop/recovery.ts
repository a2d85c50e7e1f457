import { isDiverged } from '../../ddp/exact/state-fingerprint.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { withoutEpoch } from '../../peer/collective/failure.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import {
  type ErrorCode,
  GpuError,
  isOfOneRank,
  PeerError,
  TabringError,
} from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import type { KeptStates } from '../saves/kept-states.ts'
import { Eviction } from './eviction.ts'
import { type Brought, type Settled, synchronizeStates } from './synchronize-states.ts'

/** How long a device that fails may take to say that it is lost. */
const lossWordMs = 2000
/** How long one that works may: it has answered, and its loss would be known by then. */
const lossAfterAnswerMs = 100
/** How many times in a row all ranks together may go back without progress. */
const maxLosses = 3
/** Steps that are progress: as many beyond the one to which they went back before. One in each attempt would not be. */
const minProgress = 5

const lostCode: ErrorCode = 'gpu.lost'

/** Tells whether a group ended because a rank lost its device: then all ranks meet again. */
export const isLoss = (error: PeerError | undefined): boolean => error?.code === lostCode

/** Tells whether a group ended because a link between two ranks lost or changed frames. */
const isLinkBroken = (error: unknown): boolean =>
  error instanceof PeerError && error.code === 'peer.protocol'

/** Tells whether a group ended because a rank went, fell silent, or has a broken link. */
export const isRankLost = (error: unknown): boolean =>
  isLinkBroken(error) ||
  (error instanceof PeerError && (error.code === 'peer.lost' || error.code === 'peer.timeout'))

/** Between two steps all ranks have kept their state, to continue in another group. */
export class Regrouping extends Error {}

/** Facts that a rank brings besides the counts kept here. */
type BroughtBesides = Omit<Brought, 'losses' | 'faults' | 'wentBackTo'>

/** Where a run continues. */
export interface Place {
  readonly group: ProcessGroup
  readonly runtime: AnyRuntime
}

export interface RecoveryOptions {
  /** Opens a device in place of one that was lost; without it, a loss of this rank's device ends the run. */
  readonly reopen?: () => Promise<AnyRuntime>
  /**
   * Joins the group that follows one which a loss has ended; without it, a loss ends the run of several ranks.
   *
   * An error after that is for the caller to make known in the group that this gave.
   */
  readonly regroup?: (ended: ProcessGroup) => Promise<ProcessGroup>
  /** True if the group that follows may have other ranks: then a lost rank does not end the run. Default: the same ranks meet again. */
  readonly isElastic?: boolean
  /** Of an elastic run with `exact`: ranks that hold other states meet again, and take that of most. Default: such a difference ends the run. */
  readonly isExact?: boolean
  /** Called as the state goes to ranks that lack it. */
  readonly onState?: (doneBytes: number, totalBytes: number) => void
  /** For tests. */
  readonly env?: Env
  /** Default: a warning on the console. */
  readonly warn?: (text: string) => void
}

/**
 * Continues a run after a lost device, and where it is elastic after a lost rank.
 *
 * With several ranks the loss ends their group: the rank that loses its device aborts it, so that nobody waits in vain. The ranks that are
 * left meet in a group that follows, settle the newest step that one of them has kept (meet.ts), and continue from there. Ranks that have a
 * new device to open do so in that group, where the others wait for them.
 */
export class Recovery {
  /** Devices of this rank that were lost and replaced. */
  lostDevices = 0
  readonly #options: RecoveryOptions
  readonly #env: Env
  /** Since there was progress. */
  #losses = 0
  /** Of these, by this rank's device or state. */
  #faults = 0
  /** The step to which the last of them went back. */
  #wentBackTo = 0

  constructor(options: RecoveryOptions) {
    this.#options = options
    this.#env = options.env ?? systemEnv
  }

  /**
   * Returns what a failure of this rank means for the others. `leavesAlone`: its cause is on this rank alone, such as its device, and they continue.
   * So they do without one that joins and has not trained yet, or that was evicted; and after a lost device, or a state that differs.
   */
  failed(
    error: TabringError,
    { joins, hasTrained }: { readonly joins: boolean; readonly hasTrained: boolean },
  ): { readonly leavesAlone: boolean; readonly codeForOthers: ErrorCode } {
    const { isElastic = false, isExact = false } = this.#options
    const { code } = error
    const leavesAlone = error instanceof Eviction || (isElastic && hasTrained && isOfOneRank(code))
    if (leavesAlone || (isElastic && joins && !hasTrained))
      return { leavesAlone, codeForOthers: 'peer.lost' }
    const isMended = isElastic && isExact && code === 'train.diverged'
    return { leavesAlone, codeForOthers: code === lostCode || isMended ? 'peer.aborted' : code }
  }

  /**
   * Returns where to continue after `error`, and what ranks have settled; forgets states of later steps. `brought`: read once the next group
   * has formed.
   *
   * errors: `error` itself where it is no loss that a run outlives; after too many `Eviction` where an elastic run continues without those that had
   * most of them, else the last one's; those of opening a device and of joining.
   */
  async after(
    error: unknown,
    place: Place,
    kept: KeptStates,
    brought: () => BroughtBesides,
  ): Promise<Place & Settled> {
    if (place.group.size > 1 || place.group.error || error instanceof Regrouping) {
      return this.#together(error, place, kept, brought)
    }
    const { reopen } = this.#options
    const step = kept.newest?.progress.step ?? 0
    if (this.#isProgress(step)) this.#losses = 0
    if (!reopen || this.#losses >= maxLosses) throw error
    const reason = await this.#lossBehind(error, place.runtime)
    if (reason === undefined) throw error
    this.#losses++
    this.#wentBackTo = step
    this.lostDevices++
    this.#tellLoss(`the device was lost (${reason}).`, step)
    const { suspect, hasOtherRanks } = brought()
    return {
      ...place,
      runtime: await reopen(),
      step,
      suspect,
      hasOtherRanks,
      losses: this.#losses,
      faults: [this.#losses],
      wentBackTo: step,
      giver: undefined,
    }
  }

  #isProgress(step: number, wentBackTo = this.#wentBackTo): boolean {
    return step >= wentBackTo + minProgress
  }

  #follows(error: PeerError | undefined): error is PeerError {
    if (!error) return false
    const { isElastic = false } = this.#options
    return isLoss(error) || (isElastic && isRankLost(error)) || this.#isMended(error)
  }

  #isMended(error: unknown): boolean {
    const { isElastic = false, isExact = false } = this.#options
    return isElastic && isExact && isDiverged(error)
  }

  async #together(
    error: unknown,
    { group, runtime }: Place,
    kept: KeptStates,
    brought: () => BroughtBesides,
  ): Promise<Place & Settled> {
    const { regroup, reopen } = this.#options
    const isPlanned = error instanceof Regrouping
    const reason = group.error || isPlanned ? undefined : await this.#lossBehind(error, runtime)
    if (reason !== undefined) {
      const text = `rank ${group.rank} lost its device (${reason}).`
      if (!regroup) {
        throw new GpuError(lostCode, `device: ${text} Start again, with or without that rank.`, {
          cause: error,
        })
      }
      group.abort(new PeerError(lostCode, text))
    } else if (!group.error && this.#isMended(error)) group.abort(error as PeerError)
    if (!regroup || !(isPlanned || this.#follows(group.error))) throw error
    const loss = group.error && withoutEpoch(group.error.message, group.epoch)
    const { error: ended } = group
    const isCounted = isLoss(ended) || isLinkBroken(ended) || this.#isMended(ended)
    if (isCounted) this.#losses++
    if (reason !== undefined) this.#faults++
    const next = await regroup(group)
    let current = runtime
    // The answer takes some time, in which the ranks meet.
    const gone = this.#isGone(current)
    try {
      const settled = await synchronizeStates(
        next,
        kept,
        {
          ...brought(),
          losses: this.#losses,
          faults: this.#faults,
          wentBackTo: this.#wentBackTo,
        },
        this.#options.isExact ?? false,
        this.#options.onState,
      )
      const { step, wentBackTo } = settled
      // By what all have settled: they end together, and a state in which they did not agree is none.
      const sinceProgress = (count: number) =>
        this.#isProgress(step, wentBackTo) ? Math.min(1, count) : count
      const losses = sinceProgress(settled.losses)
      this.#losses = losses
      this.#faults = sinceProgress(settled.faults[next.rank])
      this.#wentBackTo = isCounted ? step : wentBackTo
      if (losses > maxLosses) {
        // All ranks say so: the first to throw ends the group for those that are still settling.
        await next.barrier().catch(() => undefined)
        const text = (remedy: string) =>
          `recovery: the ${group.size} ranks went back ${losses} times without progress in training, at most ${maxLosses} times are allowed; the last time: ${loss} ${remedy}`
        const atFault = ranksAtFault(settled.faults, losses)
        if (this.#options.isElastic && atFault.length > 0 && atFault.length < next.size) {
          this.#losses = 0
          this.#faults = 0
          const code = this.#isMended(ended) ? 'train.diverged' : lostCode
          const who = formatRanks(atFault)
          const remedy = `The others continue without ${who}. Check the GPU there, then reload the tab.`
          throw new Eviction(code, text(remedy), atFault)
        }
        if (this.#isMended(ended)) {
          const remedy = 'Restart without the rank that computes or keeps wrong bits.'
          throw new PeerError('train.diverged', text(remedy))
        }
        if (isLinkBroken(ended)) {
          const remedy = 'Start again without one of these two ranks.'
          throw new PeerError('peer.protocol', text(remedy))
        }
        const remedy =
          'Close other pages that use the GPU, or start again with a smaller batch or without that rank.'
        throw new GpuError(lostCode, text(remedy))
      }
      const { differed } = settled
      if (differed) this.#tellLoss(`${differed.text}.`, settled.step)
      else if (loss !== undefined) this.#tellLoss(loss, settled.step)
      if (await gone) {
        if (!reopen) throw error
        this.lostDevices++
        current = await reopen()
      }
      return {
        group: next,
        runtime: current,
        ...settled,
        differed: differed ?? deviceLoss(group.error, loss),
      }
    } catch (thrown) {
      // Another loss while ranks were meeting.
      if (this.#follows(next.error) && !(thrown instanceof Eviction)) {
        return this.#together(thrown, { group: next, runtime: current }, kept, brought)
      }
      throw thrown
    }
  }

  /** `loss` says what was lost and why; what a caller should do about it is done here. */
  #tellLoss(loss: string, step: number): void {
    const { warn = console.warn } = this.#options
    warn(`tabring: ${loss} Training resumes from step ${step}.`)
  }

  #later(ms: number): Promise<undefined> {
    return new Promise((resolve) => this.#env.after(ms, () => resolve(undefined)))
  }

  /** Returns the browser's message on the lost device behind `error`; a command may fail a moment before that. Undefined: it is not lost. */
  async #lossBehind(error: unknown, runtime: AnyRuntime): Promise<string | undefined> {
    if (!('gpu' in runtime) || !mayBeLoss(error)) return undefined
    return Promise.race([runtime.gpu.lost, this.#later(lossWordMs)])
  }

  /** Tells whether the device is lost, without an error: one that works answers, and has then done all that it was given. */
  async #isGone(runtime: AnyRuntime): Promise<boolean> {
    if (!('gpu' in runtime)) return false
    const { lost, queue } = runtime.gpu
    const answer = queue.onSubmittedWorkDone().catch(() => undefined)
    const stays = answer.then(() => this.#later(lossAfterAnswerMs))
    return (await Promise.race([lost, stays])) !== undefined
  }
}

/** The ranks that had more than half of the losses; `faults`: by rank. */
const ranksAtFault = (faults: readonly number[], losses: number): number[] =>
  faults.flatMap((count, rank) => (2 * count > losses ? [rank] : []))

/** A lost device, as ranks report a fault of one of them that is mended. */
const deviceLoss = (error: PeerError | undefined, loss = ''): Settled['differed'] =>
  isLoss(error)
    ? {
        ranks: [],
        text: `${loss.replace(/\.$/, '').slice(0, 300)} and opened another`,
        isLasting: false,
      }
    : undefined

/** A command on a device that is about to be lost fails with an error of ours, or with one of the browser's. */
const mayBeLoss = (error: unknown): boolean =>
  !(error instanceof TabringError) || error.code.startsWith('gpu.')
