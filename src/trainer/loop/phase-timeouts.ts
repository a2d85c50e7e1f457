import type { ProcessGroup } from '../../peer/group/group.ts'

/**
 * Loading, compiling and tuning may take one rank minutes longer than another. Whoever dies meanwhile is missed by the heartbeat
 * within seconds, so this bounds only what lives and does not move.
 */
const setupDeadlineMs = 600_000
const leastStepDeadlineMs = 30_000
const stepsOfPatience = 10
/** Weight of the newest step in the mean. */
const newest = 0.2

/** How long a step's exchange with a newcomer may take to let it in, where a step takes `stepMs`. units: ms. */
export const exchangeLimitMs = (stepMs: number): number => Math.max(1000, 2 * stepMs)

/** How long all ranks wait for a newcomer that takes the state: that moves up to 1.5 times what a step's exchange does. units: ms. */
export const transferLimitMs = (stepMs: number): number => Math.max(4000, 4 * stepMs)

/** How long a group's collectives may stand still: minutes around the loop, ten times the mean step inside. */
export class Patience {
  readonly #group: ProcessGroup
  #meanMs = Number.NaN

  constructor(group: ProcessGroup) {
    this.#group = group
    this.forSetup()
  }

  /** For what takes ranks differently long: before the first step, and evaluation. */
  forSetup(): void {
    this.#group.deadlineMs = setupDeadlineMs
  }

  /** A step took `totalMs`; returns the mean. */
  stepped(totalMs: number): number {
    this.#meanMs = Number.isNaN(this.#meanMs)
      ? totalMs
      : this.#meanMs + newest * (totalMs - this.#meanMs)
    this.#group.deadlineMs = Math.max(leastStepDeadlineMs, stepsOfPatience * this.#meanMs)
    return this.#meanMs
  }
}
