import * as v from 'valibot'
import { giverAmong, type StatesDiffered } from '../../ddp/committed/committed-states.ts'
import type { SharedBytes } from '../../ddp/committed/share-bytes.ts'
import { isDiverged } from '../../ddp/exact/state-fingerprint.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { lossRemedy, withoutEpoch } from '../../peer/collective/failure.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import {
  type ErrorCode,
  GpuError,
  isOfOneRank,
  PeerError,
  RunError,
  TabringError,
} from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { longestTimeoutMs } from '../../util/options.ts'
import type { Agreed } from '../saves/changes.ts'
import { type KeptStates, keepEvery, maxKept } from '../saves/kept-states.ts'
import { hashOfState } from '../saves/state-hash.ts'
import { changesSchema } from '../settings/changes.ts'
import { Eviction } from './eviction.ts'
import { transferLimitMs } from './phase-timeouts.ts'

/** How long a device that fails may take to say that it is lost. */
const lossWordMs = 2000
/** How long one that works may: it has answered, and its loss would be known by then. */
const lossAfterAnswerMs = 100
/** How many times in a row all ranks together may go back without progress. */
const maxLosses = 3
/** Steps that are progress: as many beyond the one to which they went back before. One in each attempt would not be. */
const minProgress = 5

/** Steps that a run can have taken beyond a state that ranks still have, and the next one. */
const maxAhead = maxKept * keepEvery + 1

const lostCode: ErrorCode = 'gpu.lost'

/** Tells whether a group ended because a rank lost its device: then all ranks form another. */
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

/** Agreements of ranks when they form a group that follows another: the same on all of them. */
export interface Settled {
  /** The step from which they continue. */
  readonly step: number
  /** The step that is to be looked at, 0 for none. */
  readonly suspect: number
  /** How many times in a row the ranks went back without progress. */
  readonly losses: number
  /** By rank: how many of these were by its device or its state. */
  readonly faults: readonly number[]
  /** The step to which they did so last. */
  readonly wentBackTo: number
  /** The rank that has what a person gave, where another lacks it. */
  readonly giver: number | undefined
  /** True if the run has had other ranks than those that began it. */
  readonly hasOtherRanks: boolean
  /** Of settings, by the ranks so far; undefined where no rank has a list that counts. */
  readonly agreed: Agreed | undefined
  /** Of an exact run: ranks held other states of that step. */
  readonly differed?: StatesDiffered
  /** On a rank that joins: how long each of what it takes from the others may take. units: ms. */
  readonly limitMs?: number
}

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** Report of a rank to the others, who have no other proof of it. */
const reportSchema = v.strictObject({
  suspect: whole,
  losses: whole,
  /** How many times in a row the ranks went back by its device or its state. */
  faults: whole,
  wentBackTo: whole,
  /** True if it has what a person gave. */
  hasGiven: v.boolean(),
  hasOtherRanks: v.boolean(),
  agreed: v.optional(v.strictObject({ version: whole, changes: changesSchema })),
  /** How long its steps took. A newcomer waits some times as long. */
  stepMs: v.optional(v.pipe(v.number(), v.minValue(0), v.maxValue(longestTimeoutMs / 8))),
  held: v.pipe(
    v.array(v.strictObject({ step: whole, hash: v.pipe(v.string(), v.maxLength(16)) })),
    v.maxLength(maxKept),
  ),
})
type Report = v.InferOutput<typeof reportSchema>
const isReport = (received: unknown): received is Report => v.is(reportSchema, received)

/** Facts that a rank brings besides the states that it has kept. */
type Brought = Omit<Report, 'held'>

/** Facts that a rank brings besides the counts kept here. */
type BroughtBesides = Omit<Brought, 'losses' | 'faults' | 'wentBackTo'>

/** Decides who is in the next group of a run: its members among themselves, or nobody, where the same ranks form another. */
export interface NextGroups {
  /**
   * Joins the group that follows one which a loss or all its ranks have ended.
   *
   * An error after that is made known in the group that this gave.
   */
  after(ended: ProcessGroup): Promise<ProcessGroup>
  /** This rank has the newest state of its group. */
  hasState?(): void
  /** The next group is without these ranks of the newest one. */
  evict?(ranks: readonly number[]): void
}

/** The run on this rank, as its groups follow one another. */
export interface RunOfRank {
  /** True once this rank has taken a step. */
  hasTrained(): boolean
  /** Read once the next group has formed. */
  brought(): BroughtBesides
  /** Keeps the newest state, where that is possible, since the group or the device has ended. */
  keepNow(): Promise<void>
  /**
   * Returns true where all ranks of the group have the same error, and do the steps after an earlier state again; later states are then
   * forgotten. errors: `error` where it ends the run.
   */
  goesBack(error: unknown): boolean
  /** Another group follows. */
  leaves(ended: ProcessGroup): void
  /** It has formed. */
  joined(group: ProcessGroup, ended: ProcessGroup): void
}

export interface RunGroupsOptions {
  readonly run: RunOfRank
  readonly kept: KeptStates
  /** The first group. */
  readonly group: ProcessGroup
  readonly runtime: AnyRuntime
  /** Opens a device in place of one that was lost; without it, a loss of this rank's device ends the run. */
  readonly reopen?: () => Promise<AnyRuntime>
  /** Without it, a loss ends the run of several ranks. */
  readonly groups?: NextGroups
  /** True if the group that follows may have other ranks: then a lost rank does not end the run. Default: the same ranks form it. */
  readonly isElastic?: boolean
  /** Of an elastic run with `exact`: ranks that hold other states synchronize, and take the state of most. Default: such a difference ends the run. */
  readonly isExact?: boolean
  /** True if the run is on already: this rank gets its state from the others. Default false. */
  readonly joins?: boolean
  /**
   * True if this rank's first group follows one that ended before this rank was in it, while others may have been: it synchronizes with them, as
   * a rank that joins does. Default false.
   */
  readonly synchronizesFirst?: boolean
  /** Called as the state goes to ranks that lack it. */
  readonly onState?: (doneBytes: number, totalBytes: number) => void
  /** Ends the run with its reason. */
  readonly signal?: AbortSignal
  /** For tests. */
  readonly env?: Env
  /** Default: a warning on the console. */
  readonly warn?: (text: string) => void
}

/** Why the group before ended, or this rank's device was lost. */
interface Loss {
  readonly error: unknown
  /** Undefined where the ranks only wanted another group. */
  readonly text: string | undefined
  /** How the group ended; undefined where this rank continues in it. */
  readonly ended: PeerError | undefined
  /** True if the ranks went back by it. */
  readonly isCounted: boolean
}

/**
 * The groups of a run, one after the other, on this rank: after a lost device, and where the run is elastic after a lost rank.
 *
 * With several ranks the loss ends their group: the rank that loses its device aborts it, so that nobody waits in vain. The ranks that are
 * left join a group that follows, settle the newest step that one of them has kept (`synchronizeStates`), and continue from there. Ranks that
 * have a new device to open do so in that group, where the others wait for them.
 */
export class RunGroups {
  group: ProcessGroup
  runtime: AnyRuntime
  /** Devices of this rank that were lost and replaced. */
  lostDevices = 0
  /** True if the run has failed by what this rank alone has, such as its device: the others continue. */
  leavesAlone = false
  readonly #options: RunGroupsOptions
  readonly #env: Env
  #loss: Loss | undefined
  /** Since there was progress. */
  #losses = 0
  /** Of these, by this rank's device or state. */
  #faults = 0
  /** The step to which the last of them went back. */
  #wentBackTo = 0

  constructor(options: RunGroupsOptions) {
    this.#options = options
    this.#env = options.env ?? systemEnv
    this.group = options.group
    this.runtime = options.runtime
  }

  /**
   * Calls `train` in each group until it ends; `settled`: by all ranks of the group, undefined in the first group of those that begin the run.
   * What ends the run is made known to the others.
   *
   * errors: those of `train` that are no loss that a run outlives; after too many losses `Eviction` on ranks that had most of them, on the
   * others only where the run is not elastic; those of opening a device and of joining.
   */
  async run<Result>(train: (settled?: Settled) => Promise<Result>): Promise<Result> {
    const { joins, synchronizesFirst } = this.#options
    let isFounding = !joins && !synchronizesFirst
    try {
      for (;;) {
        let isEntering = !isFounding
        try {
          const settled = isFounding ? undefined : await this.#enter()
          isEntering = false
          return await train(settled)
        } catch (error) {
          isFounding = false
          await this.#leave(error, isEntering)
        }
      }
    } catch (thrown) {
      this.#makeKnown(thrown)
      throw thrown
    }
  }

  /** Makes another group possible after `error`, and joins it; or throws `error`. */
  async #leave(error: unknown, isEntering: boolean): Promise<void> {
    const { group, runtime } = this
    const { run, signal, reopen, groups } = this.#options
    if (signal?.aborted) throw error
    if (error instanceof Eviction) this.#evict(error)
    if (!group.error) {
      // Such as opening a device: the others do not leave a new group by it.
      if (isEntering) throw error
      if (run.goesBack(error)) {
        this.#loss = undefined
        return
      }
    }
    await run.keepNow()
    const isPlanned = error instanceof Regrouping
    const isAlone = group.size === 1 && !group.error && !isPlanned
    const reason = group.error || isPlanned ? undefined : await this.#lossBehind(error, runtime)
    if (isAlone) {
      if (!reopen || reason === undefined) throw error
      const text = `the device was lost (${reason}).`
      this.#count({ error, text, ended: undefined, isCounted: true }, true)
      return
    }
    if (reason !== undefined) {
      const text = `rank ${group.rank} lost its device (${reason}).`
      if (!groups) {
        throw new GpuError(lostCode, `device: ${text} Start again, with or without that rank.`, {
          cause: error,
        })
      }
      group.abort(new PeerError(lostCode, text))
    } else if (!group.error && this.#isMended(error)) group.abort(error as PeerError)
    const { error: ended } = group
    if (!groups || !(isPlanned || this.#follows(ended))) throw error
    const text = ended && withoutEpoch(ended.message, group.epoch)
    const isCounted = isLoss(ended) || isLinkBroken(ended) || this.#isMended(ended)
    this.#count({ error, text, ended, isCounted }, reason !== undefined)
    run.leaves(group)
    this.group = await groups.after(group)
    run.joined(this.group, group)
  }

  #count(loss: Loss, isFault: boolean): void {
    this.#loss = loss
    if (loss.isCounted) this.#losses++
    if (isFault) this.#faults++
  }

  /**
   * Settles with the ranks of the group from where they continue; forgets states of later steps.
   *
   * errors: those of `synchronizeStates`; after too many losses `Eviction` where an elastic run continues without those that had most of
   * them, else one that says so.
   */
  async #enter(): Promise<Settled> {
    const { run, kept, reopen, groups, isExact = false, onState } = this.#options
    const { group } = this
    const loss = this.#loss
    // The answer takes some time, in which the ranks synchronize.
    const gone = loss && this.#isGone(this.runtime)
    const settled = await synchronizeStates(
      group,
      kept,
      {
        ...run.brought(),
        losses: this.#losses,
        faults: this.#faults,
        wentBackTo: this.#wentBackTo,
      },
      isExact,
      onState,
    )
    const { step, wentBackTo, differed } = settled
    // By what all have settled: they end together, and a state in which they did not agree is none.
    const sinceProgress = (count: number) =>
      step >= wentBackTo + minProgress ? Math.min(1, count) : count
    this.#losses = sinceProgress(settled.losses)
    this.#faults = sinceProgress(settled.faults[group.rank])
    this.#wentBackTo = loss?.isCounted ? step : wentBackTo
    if (!loss) {
      groups?.hasState?.()
      return settled
    }
    if (this.#losses > maxLosses) throw await this.#tooMany(loss, settled.faults)
    const { warn = console.warn } = this.#options
    const text = differed ? `${differed.text}.` : loss.text?.replace(lossRemedy, '')
    if (text !== undefined) warn(`tabring: ${text} Training resumes from step ${step}.`)
    if (await gone) {
      if (!reopen) throw loss.error
      this.lostDevices++
      this.runtime = await reopen()
    }
    groups?.hasState?.()
    return { ...settled, differed: differed ?? deviceLoss(loss) }
  }

  /** The error with which all ranks end, or evict some; `faults`: by rank. */
  async #tooMany({ error, text, ended }: Loss, faults: readonly number[]): Promise<unknown> {
    const { group } = this
    if (group.size === 1 && !ended) return error
    const losses = this.#losses
    // All ranks say so: the first to throw ends the group for those that are still settling.
    await group.barrier().catch(() => undefined)
    const inAll = (remedy: string) =>
      `recovery: the ${group.size} ranks went back ${losses} times without progress in training, at most ${maxLosses} times are allowed; the last time: ${text} ${remedy}`
    const atFault = ranksAtFault(faults, losses)
    if (this.#options.isElastic && atFault.length > 0 && atFault.length < group.size) {
      this.#losses = 0
      this.#faults = 0
      const code = this.#isMended(ended) ? 'train.diverged' : lostCode
      const who = formatRanks(atFault)
      const remedy = `The others continue without ${who}. Check the GPU there, then reload the tab.`
      return new Eviction(code, inAll(remedy), atFault)
    }
    if (this.#isMended(ended)) {
      const remedy = 'Restart without the rank that computes or keeps wrong bits.'
      return new PeerError('train.diverged', inAll(remedy))
    }
    if (isLinkBroken(ended)) {
      const remedy = 'Start again without one of these two ranks.'
      return new PeerError('peer.protocol', inAll(remedy))
    }
    const remedy =
      'Close other pages that use the GPU, or start again with a smaller batch or without that rank.'
    return new GpuError(lostCode, inAll(remedy))
  }

  /** Ends the group without the evicted ranks, also where these do not agree. errors: `error` on one of them. */
  #evict(error: Eviction): void {
    const { ranks } = error
    const { group } = this
    if (ranks.includes(group.rank)) throw error
    group.abort(new RunError('peer.lost', error.message, { ranks }))
    this.#options.groups?.evict?.(ranks)
  }

  /**
   * Tells the others that this rank has failed. Where its cause is on this rank alone, such as its device, they continue; so they do without one
   * that joins and has not trained yet, or that was evicted; and after a lost device, or a state that differs.
   */
  #makeKnown(thrown: unknown): void {
    const { run, joins, isElastic = false } = this.#options
    const error =
      thrown instanceof TabringError ? thrown : new TabringError('graph.misuse', String(thrown))
    const ranks = error instanceof Eviction ? error.ranks : undefined
    // The others may have ended the group without the evicted ranks before these have.
    if (this.group.error && !ranks) return
    const { code } = error
    this.leavesAlone = ranks !== undefined || (isElastic && run.hasTrained() && isOfOneRank(code))
    const isAlone = this.leavesAlone || (isElastic && joins && !run.hasTrained())
    const isMended = code === lostCode || this.#isMended(error)
    const codeForOthers = isAlone ? 'peer.lost' : isMended ? 'peer.aborted' : code
    this.group.abort(new RunError(codeForOthers, error.message, { ranks }))
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
const deviceLoss = ({ ended, text = '' }: Loss): Settled['differed'] =>
  isLoss(ended)
    ? {
        ranks: [],
        text: `${text.replace(/\.$/, '').slice(0, 300)} and opened another`,
        isLasting: false,
      }
    : undefined

/** A command on a device that is about to be lost fails with an error of ours, or with one of the browser's. */
const mayBeLoss = (error: unknown): boolean =>
  !(error instanceof TabringError) || error.code.startsWith('gpu.')

/**
 * Settles the newest step that any rank has kept, and brings that state to those that lack it; later ones are forgotten. All ranks of a new
 * group call it first. `isExact`: ranks that hold another state of that step than most count among those that lack it (`agreeOnState`).
 *
 * errors: the group's; those of `unpackState`; `peer.protocol` for a state of another step or one too large; `peer.timeout` on a newcomer that
 * does not get it in time: the others continue without it.
 */
export async function synchronizeStates(
  group: ProcessGroup,
  kept: KeptStates,
  own: Brought,
  isExact: boolean,
  onProgress?: SharedBytes['onProgress'],
): Promise<Settled> {
  const held = kept.held(isExact ? hashOfState : undefined)
  const received = await gatherJson('what the ranks have kept', group, { ...own, held }, isReport)
  const max = (read: (one: Report) => number) => Math.max(0, ...received.map(read))
  const isNew = held.length === 0 && received.some((one) => one.held.length > 0)
  const limitMs = isNew ? transferLimitMs(max(({ stepMs = 0 }) => stepMs)) : undefined
  const heldByRank = received.map((one) => one.held)
  const { step, hasIt, differed } = await kept.synchronize(group, heldByRank, {
    limitMs,
    onProgress,
  })
  return {
    step,
    suspect: max(({ suspect }) => suspect),
    losses: max(({ losses }) => losses),
    faults: received.map(
      ({ faults }, rank) => faults + Number(isAtFault(differed, rank, group.size)),
    ),
    wentBackTo: max(({ wentBackTo }) => wentBackTo),
    ...(differed && { differed }),
    giver: giverAmong(received.map(({ hasGiven }) => hasGiven)),
    hasOtherRanks: received.some(({ hasOtherRanks }) => hasOtherRanks),
    agreed: newestOf(received, step, hasIt),
    ...(limitMs !== undefined && { limitMs }),
  }
}

/**
 * The newest list of changes: a rank may have heard of one that others had still to hear of. Where ranks hold the state from which the run
 * continues only theirs count, and none with a step that the run cannot have come to.
 */
function newestOf(
  reports: readonly Report[],
  step: number,
  hasIt: readonly boolean[],
): Agreed | undefined {
  const isHeld = hasIt.includes(true)
  let newest: Agreed | undefined
  for (const [rank, { agreed }] of reports.entries()) {
    if (!agreed || (isHeld && !hasIt[rank])) continue
    if (agreed.changes.some((one) => one.step > step + maxAhead)) continue
    if (!newest || agreed.version > newest.version) newest = agreed
  }
  return newest
}

/** Tells whether a rank had another state than most. */
const isAtFault = (differed: StatesDiffered | undefined, rank: number, size: number): boolean =>
  differed !== undefined && 2 * differed.ranks.length < size && differed.ranks.includes(rank)
