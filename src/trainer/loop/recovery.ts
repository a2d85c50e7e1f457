import { type AnyRuntime, Runtime } from '../../graph/memory/runtime.ts'
import { withoutEpoch } from '../../peer/collective/failure.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { type ErrorCode, GpuError, PeerError, TabringError } from '../../util/errors.ts'
import type { KeptStates } from '../saves/kept-state.ts'

/** How long a device that fails may take to say that it is lost. */
const lossWordMs = 2000
/** How long one that works may: it has answered, and its loss would be known by then. */
const lossAfterAnswerMs = 100
/** Devices that may be lost, on all ranks together, without a kept state in between. */
const mostLosses = 3

const lostCode: ErrorCode = 'gpu.lost'

/** Whether a group ended because a rank lost its device: then all ranks meet again. */
export const isLoss = (error: PeerError | undefined): boolean => error?.code === lostCode

/** Where a run goes on. */
export interface Place {
  readonly group: ProcessGroup
  readonly runtime: AnyRuntime
}

export interface RecoveryOptions {
  /** Opens a device in place of one that was lost; without it, a loss of this rank's device ends the run. */
  readonly reopen?: () => Promise<AnyRuntime>
  /**
   * Joins the same ranks again, after a group that a lost device has ended; without it, a loss ends the run of several ranks.
   *
   * An error after that is for the caller to make known in the group that this gave.
   */
  readonly regroup?: (ended: ProcessGroup) => Promise<ProcessGroup>
}

/** What ranks settle before they go on together. */
interface Settled {
  /** The step from which all can go on. */
  readonly step: number
  /** The step that is to be looked at, 0 for none. */
  readonly suspect: number
}

/**
 * Makes a run go on after a lost device.
 *
 * With several ranks the loss ends their group: whoever loses its device aborts it, so that nobody goes on waiting, and all ranks meet
 * again in a following epoch over the same links, settle the newest step that all have kept, and go on from there. The ranks that have a
 * new device to open take their time for it in that new group, where the others wait for them.
 */
export class Recovery {
  /** Devices of this rank that were lost and replaced. */
  lostDevices = 0
  readonly #options: RecoveryOptions
  /** Since a state was kept. */
  #losses = 0

  constructor(options: RecoveryOptions) {
    this.#options = options
  }

  /** A state was kept. */
  kept(): void {
    this.#losses = 0
  }

  /** The code by which a failure of this rank is told to the others, who take a lost device for something to go on after. */
  finalCode(code: ErrorCode): ErrorCode {
    return code === lostCode ? 'peer.aborted' : code
  }

  /**
   * Returns where to go on after `error`, and what ranks have settled; forgets states that not all ranks have.
   *
   * errors: `error` itself where it is no lost device; `gpu.lost` after too many; those of opening a device and of joining.
   */
  async after(
    error: unknown,
    place: Place,
    kept: KeptStates,
    suspect: number,
  ): Promise<Place & Settled> {
    if (place.group.size > 1) return this.#together(error, place, kept, suspect)
    const { reopen } = this.#options
    if (!reopen || this.#losses >= mostLosses) throw error
    const reason = await lossBehind(error, place.runtime)
    if (reason === undefined) throw error
    this.#losses++
    this.lostDevices++
    const [step] = kept.steps
    tellLoss(`the device was lost (${reason}).`, step)
    return { ...place, runtime: await reopen(), step, suspect }
  }

  async #together(
    error: unknown,
    { group, runtime }: Place,
    kept: KeptStates,
    suspect: number,
  ): Promise<Place & Settled> {
    const { regroup, reopen } = this.#options
    const reason = group.error ? undefined : await lossBehind(error, runtime)
    if (reason !== undefined) {
      const text = `rank ${group.rank} lost its device (${reason}).`
      if (!regroup) {
        throw new GpuError(lostCode, `device: ${text} Start again, with or without that rank.`, {
          cause: error,
        })
      }
      group.abort(new PeerError(lostCode, text))
    }
    if (!regroup || !group.error || !isLoss(group.error)) throw error
    const loss = withoutEpoch(group.error.message, group.epoch)
    this.#losses++
    const next = await regroup(group)
    let current = runtime
    try {
      const settled = await settle(next, kept.steps, this.#losses, suspect)
      this.#losses = settled.losses
      if (settled.losses > mostLosses) {
        // All ranks say so: the first to throw ends the group for those that are still settling.
        await next.barrier().catch(() => undefined)
        throw new GpuError(
          lostCode,
          `device: the ${group.size} ranks lost GPU devices ${settled.losses} times without progress in training, at most ${mostLosses} times are allowed; ${loss} Close other pages that use the GPU, or start again with a smaller batch or without that rank.`,
        )
      }
      kept.backTo(settled.step)
      tellLoss(loss, settled.step)
      if (await isGone(current)) {
        if (!reopen) throw error
        this.lostDevices++
        current = await reopen()
      }
      return { group: next, runtime: current, ...settled }
    } catch (thrown) {
      // Another device went while ranks were meeting.
      if (isLoss(next.error)) {
        return this.#together(thrown, { group: next, runtime: current }, kept, suspect)
      }
      throw thrown
    }
  }
}

/** `loss` says what was lost and why; what a caller should do about it is done here. */
const tellLoss = (loss: string, step: number): void =>
  console.warn(`tabring: ${loss} Training resumes from step ${step}.`)

/** What a device that is about to be lost makes of a command: an error of its own, or one of the browser's. */
const mayBeLoss = (error: unknown): boolean =>
  !(error instanceof TabringError) || error.code.startsWith('gpu.')

const later = (ms: number) => new Promise<undefined>((resolve) => setTimeout(resolve, ms))

/** What the browser says of the lost device that `error` comes of; a command may fail a moment before that. Undefined: it is not lost. */
async function lossBehind(error: unknown, runtime: AnyRuntime): Promise<string | undefined> {
  if (!(runtime instanceof Runtime) || !mayBeLoss(error)) return undefined
  return Promise.race([runtime.gpu.lost, later(lossWordMs)])
}

/** Whether the device is lost, without an error: one that works answers, and has then done all that it was given. */
async function isGone(runtime: AnyRuntime): Promise<boolean> {
  if (!(runtime instanceof Runtime)) return false
  const { lost, queue } = runtime.gpu
  const answer = queue.onSubmittedWorkDone().catch(() => undefined)
  const stays = answer.then(() => later(lossAfterAnswerMs))
  return (await Promise.race([lost, stays])) !== undefined
}

/** Tells all ranks what this one has, and returns what they have in common: the same on each. errors: the group's. */
async function settle(
  group: ProcessGroup,
  steps: readonly number[],
  losses: number,
  suspect: number,
): Promise<Settled & { losses: number }> {
  const own = Uint32Array.of(losses, suspect, ...steps)
  const all = await group.allGatherU32(own, { label: 'the lost device' })
  const ranks = Array.from({ length: group.size }, (_, rank) =>
    all.subarray(rank * own.length, (rank + 1) * own.length),
  )
  const stepsOf = ranks.map((told) => [...told.subarray(2)])
  return {
    losses: Math.max(...ranks.map(([count]) => count)),
    suspect: Math.max(...ranks.map(([, step]) => step)),
    step: Math.max(...stepsOf[0].filter((step) => stepsOf.every((own) => own.includes(step)))),
  }
}
