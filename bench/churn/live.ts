import { rm } from 'node:fs/promises'
import { setTimeout as pass } from 'node:timers/promises'
import type { Browser, Page } from 'playwright'
import type { CheckpointFolder } from '../../node/checkpoint-folder.ts'
import { chromiumTabs } from '../../node/chromium-tabs.ts'
import { Restarts } from '../../node/restarts.ts'
import { trainInTabs } from '../../node/train/tabs.ts'
import type { TrainConfig } from '../../src/trainer/settings/config.ts'
import { messageOf } from '../../src/util/errors.ts'
import { loseTab } from '../../tests/support/lose-tab.ts'
import type { Death } from './deaths.ts'
import { Standing } from './standing.ts'

/** What a run came to in its time. */
export interface Lived {
  /** That stand at the end, after the first one. */
  readonly steps: number
  /** Between these two steps. */
  readonly seconds: number
  /** Tabs that were lost. */
  readonly lost: number
  /** How often all tabs were opened. */
  readonly starts: number
}

export interface Life {
  readonly browser: Browser
  /** Of the server, with its final slash. */
  readonly url: string
  /** The server has it among its writable folders. */
  readonly checkpoints: CheckpointFolder
  readonly config: TrainConfig
  readonly tabs: number
  readonly deaths: readonly Death[]
  /** At least so long, from the first step on. */
  readonly seconds: number
  readonly note: (line: string) => void
}

/** Silence of all tabs after which a run is started again, since nobody is there to decide for it. */
const silentMs = 20_000

/**
 * Trains while tabs are lost, until rank 0 reports its first step after the time and the last death. The run is started again from its newest
 * checkpoint whenever it ends.
 *
 * An elastic run does not report steps that it repeats. So the end is a reported step, which confirms all before it.
 * errors: those of a start that ended though no tab of it was lost.
 */
export async function live({ browser, config, deaths, note, ...life }: Life): Promise<Lived> {
  const { url, tabs, seconds, checkpoints } = life
  await rm(checkpoints.path, { recursive: true, force: true })
  await checkpoints.prove()
  const over = new AbortController()
  const standing = new Standing()
  let begun: { ms: number; step: number; playing: Promise<void>; isPlayed: boolean } | undefined
  let lived: Lived | undefined
  let lost = 0
  let starts = 0
  const stepped = (ms: number) => {
    const { step } = standing
    if (!begun) {
      const playing = play({ browser, deaths, tabs }, over.signal, () => lost++)
      const began = { ms, step, playing, isPlayed: false }
      begun = began
      playing.then(() => {
        began.isPlayed = true
      })
    } else if (begun.isPlayed && ms >= begun.ms + 1000 * seconds) {
      const steps = Math.max(0, step - begun.step)
      lived = { steps, seconds: (ms - begun.ms) / 1000, lost, starts }
      over.abort(new Error('churn: the time is over'))
    }
  }
  try {
    while (!lived) {
      starts++
      const lostBefore = lost
      try {
        await trainInTabs({
          browser: chromiumTabs(browser),
          url,
          worldSize: tabs,
          config: standing.saved > 0 ? { ...config, resume: 'latest' } : config,
          checkpoints: { keepLast: 1, folder: checkpoints.offer() },
          timeoutMs: silentMs,
          restarts: new Restarts(Number.POSITIVE_INFINITY),
          signal: over.signal,
          onEvent: (event) => {
            if (lived) return
            standing.take(event)
            if (event.event === 'step' && event.rank === 0) stepped(performance.now())
          },
        })
        throw new Error(`churn: the run had only ${config.steps} steps. Use fewer seconds.`)
      } catch (thrown) {
        if (lived) break
        if (lost === lostBefore) throw thrown
        await closeAll(browser)
        standing.end()
        note(`start ${starts} ended, next from step ${standing.step}: ${messageOf(thrown)}`)
      }
    }
    return lived!
  } finally {
    over.abort()
    await begun?.playing
    await closeAll(browser)
  }
}

/** Loses tabs as planned, `tabs` when all are open. A death that picks one that is not open yet is skipped. */
async function play(
  { browser, deaths, tabs }: Pick<Life, 'browser' | 'deaths' | 'tabs'>,
  signal: AbortSignal,
  onLost: () => void,
): Promise<void> {
  const beganMs = performance.now()
  const dying = new Map<Page, Promise<void>>()
  for (const { atMs, pick, how } of deaths) {
    const waitMs = Math.max(0, beganMs + atMs - performance.now())
    await pass(waitMs, undefined, { signal }).catch(() => undefined)
    if (signal.aborted) break
    const open = openTabs(browser).filter((page) => !dying.has(page))
    const page = open[Math.floor(pick * Math.max(tabs, open.length))]
    if (!page) continue
    onLost()
    // The launcher closes what remains of a start that has ended, perhaps this very tab.
    dying.set(
      page,
      loseTab(page, how).catch(() => undefined),
    )
  }
  await Promise.all(dying.values())
}

/** Oldest first. A page that has no address yet is being set up, and Playwright needs it until then. */
const openTabs = (browser: Browser): Page[] =>
  browser
    .contexts()
    .flatMap((context) => context.pages())
    .filter((page) => page.url().includes('tab.html'))

async function closeAll(browser: Browser): Promise<void> {
  for (const context of browser.contexts()) await context.close()
}
