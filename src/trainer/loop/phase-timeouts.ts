import type { ProcessGroup } from '../../peer/group/group.ts'
import type { StepParts } from '../watch/step-sample.ts'

/**
 * Loading, compiling and tuning may take one rank minutes longer than another. Whoever dies meanwhile is missed by the heartbeat
 * within seconds, so this bounds only what lives and does not move.
 */
const setupDeadlineMs = 600_000
const minStepDeadlineMs = 30_000
const timeoutSteps = 10
/** Weight of the newest step in the mean. */
const newest = 0.2

/** How long a step's exchange over a link may take, where a step takes `stepMs` without it: to let a newcomer in, and to keep a rank. units: ms. */
export const exchangeLimitMs = (stepMs: number): number => Math.max(1000, 2 * stepMs)

/** How long all ranks wait for a newcomer that takes the state: that moves up to 1.5 times what a step's exchange does. units: ms. */
export const transferLimitMs = (stepMs: number): number => Math.max(4000, 4 * stepMs)

/** How long a group's collectives may stand still: minutes around the loop, ten times the mean step inside. */
export class PhaseTimeouts {
  /** Time of a step without that of the links: a mean of the steps that they did not hold up; NaN before the first. units: ms. */
  restMs: number
  readonly #group: ProcessGroup
  #meanMs = Number.NaN

  /** `before`: of the group before it. */
  constructor(
    group: ProcessGroup,
    before?: { readonly group: ProcessGroup; readonly restMs: number },
  ) {
    this.#group = group
    // Another rank may compute more slowly than all of those.
    this.restMs = before && group.size < before.group.size ? before.restMs : Number.NaN
    this.forSetup()
  }

  /** For what takes ranks differently long: before the first step, and evaluation. */
  forSetup(): void {
    this.#group.deadlineMs = setupDeadlineMs
  }

  /** A step has ended; returns the mean of what they take. units: ms. */
  stepped({ total, wait, wire }: Pick<StepParts, 'total' | 'wait' | 'wire'>): number {
    this.#meanMs = mean(this.#meanMs, total)
    // A slow link also makes its rank begin the next step late.
    const isHeldUp = Math.min(wait + wire, total - this.restMs) > exchangeLimitMs(this.restMs)
    if (!isHeldUp) this.restMs = mean(this.restMs, total - wire)
    this.#group.deadlineMs = Math.max(minStepDeadlineMs, timeoutSteps * this.#meanMs)
    return this.#meanMs
  }
}

const mean = (before: number, now: number): number =>
  Number.isNaN(before) ? now : before + newest * (now - before)
