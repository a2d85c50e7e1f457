import type { Loss } from '../../tests/support/lose-tab.ts'

/** A tab that is lost. */
export interface Death {
  /** From the run's first step. units: ms. */
  readonly atMs: number
  /** Which of as many places as there are tabs: from 0, the oldest one's, up to 1. */
  readonly pick: number
  readonly how: Loss
}

/**
 * The deaths within a time, in order. Each of the tabs lives for a time drawn from an exponential distribution, and is replaced at once.
 *
 * Such lives forget how long they have lasted. So losses come at exponential distances of a mean life divided by the tabs, and any tab is as
 * likely to be the next. `random`: numbers from 0 up to 1. units: ms.
 */
export function deathsOf(
  random: () => number,
  tabs: number,
  meanLifeMs: number,
  durationMs: number,
): Death[] {
  const deaths: Death[] = []
  let atMs = 0
  for (;;) {
    atMs -= (Math.log(1 - random()) * meanLifeMs) / tabs
    if (!(atMs < durationMs)) return deaths
    deaths.push({ atMs, pick: random(), how: random() < 0.5 ? 'crash' : 'close' })
  }
}
