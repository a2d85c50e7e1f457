import type { TabEvent } from '../../node/train/tab-group.ts'

/** How many steps of a run stand: each counts once, however often it was computed, and not at all once it is lost. */
export class Standing {
  #step = 0
  #saved = 0

  get step(): number {
    return this.#step
  }

  /** Of the newest checkpoint; 0: there is none. */
  get saved(): number {
    return this.#saved
  }

  /** Takes an event of a tab; the steps of rank 0 count. A run that continues with other ranks, or from a checkpoint, has the steps up to there. */
  take(event: TabEvent): void {
    if (event.event === 'checkpoint') this.#saved = event.step
    else if (event.rank !== 0) return
    else if (event.event === 'step' || event.event === 'regrouped' || event.event === 'resumed')
      this.#step = event.step
  }

  /** The run has ended: what is in no checkpoint is lost. */
  end(): void {
    this.#step = this.#saved
  }
}
