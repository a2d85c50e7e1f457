import type { InjectedEnvironment } from '../../../src/distributed/rendezvous/env.ts'
import type { RankRange } from '../../rank-range.ts'
import { codeFailsAgain, type Restarts } from '../../restarts.ts'
import { openTabs, type TabFailure, type TabRun, type TabsOptions } from '../tabs.ts'
import { ElasticGroups, type Place } from './elastic-groups.ts'

/** A program that computes between two steps hears of a lost rank after them. units: ms. */
const answerMs = 60_000

/** Variables that a rank has by its group, and that another group changes. */
const groupVariables: ReadonlySet<string> = new Set([
  'RANK',
  'LOCAL_RANK',
  'WORLD_SIZE',
  'LOCAL_WORLD_SIZE',
  'ROOM_ID',
  'ROOM_KEY',
  'RESTART_COUNT',
])

export interface ElasticTabsOptions
  extends Omit<TabsOptions, 'tabs' | 'onFailure' | 'onEnd' | 'onNextGroup'> {
  range: RankRange
  restarts: Restarts
  nextNumber: () => number
  environmentOf: (place: Place) => InjectedEnvironment
  /** Takes a line for people. */
  log: (line: string) => void
  /** Called when the run has failed; its tabs are closed then. */
  onFailure: (failure: TabFailure) => void
}

/**
 * Runs the ranks of `tabring run --elastic` in tabs. A rank that is lost is opened again and joins the others, which continue without it;
 * resolves when all have ended and are closed.
 */
export async function runElasticTabs(options: ElasticTabsOptions): Promise<void> {
  const { range, restarts, environmentOf, nextNumber, log, onFailure } = options
  const { least, most } = range
  const { variables, args } = environmentOf({ group: 0, rank: 0, worldSize: most })
  const early = Object.entries(variables).filter(([name]) => !groupVariables.has(name))
  const tabOf = (rank: number) => ({
    rank,
    environment: { variables: Object.fromEntries(early), args },
  })
  let hasBegun = false
  const groups = new ElasticGroups<TabRun>({
    least,
    most,
    nextNumber,
    answerMs,
    onFormed: ({ worldSize }, tabs) => {
      if (hasBegun) log(`continuing with ${ranksWords(worldSize)}`)
      hasBegun = true
      for (const [rank, tab] of tabs.entries()) tab.rank = rank
    },
    onFew: (ranks) => log(`--elastic: ${ranks} of at least ${least} ranks left; waiting for more`),
    onSilent: (tab) =>
      tab.fail(
        'peer.timeout',
        `runElastic: its program did not come to the next group within ${answerMs / 1000} s of the end of its group. Let commit() and collectives follow each other faster.`,
      ),
    onDone: () => open.abandon(),
  })
  const fail = (failure: TabFailure) => {
    groups.stop()
    onFailure(failure)
    open.abandon()
  }
  const lose = (failure: TabFailure, tab: TabRun) => {
    const why = `rank ${failure.rank}: ${failure.text.split('\n')[0]}`
    groups.lost(tab, why)
    if (groups.hasEndedWell && failure.code === 'worker.dead') {
      log(`${why} The others have ended well.`)
      return
    }
    if (!groups.hasState || codeFailsAgain(failure.code, true)) {
      fail(failure)
      return
    }
    const restart = restarts.take()
    if (!restart && groups.count < least) {
      const few = `--elastic: ${groups.count} of at least ${least} ranks left, and no restart. Raise --max-restarts, or lower MIN.`
      fail({ ...failure, text: `${failure.text}\n${few}` })
      return
    }
    log(`${why}\n${restart ? `${restart}: its tab is opened again` : 'no restart is left'}`)
    if (restart) groups.opened(open.open(tabOf(tab.rank)))
  }
  const first = Array.from({ length: most }, (_, rank) => tabOf(rank))
  const open = openTabs({
    ...options,
    tabs: [],
    onFailure: (failure, tab) => {
      if (tab) lose(failure, tab)
      else fail(failure)
    },
    onEnd: (tab) => groups.ended(tab),
    onNextGroup: async (tab) => ({ ...environmentOf(await groups.ask(tab)).variables }),
  })
  for (const tab of first) groups.opened(open.open(tab))
  try {
    await open.ended
  } finally {
    groups.stop()
  }
}

const ranksWords = (count: number) => `${count} rank${count === 1 ? '' : 's'}`
