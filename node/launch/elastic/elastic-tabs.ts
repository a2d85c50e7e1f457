import { groupVariables } from '../../../src/distributed/launcher/next-group.ts'
import type { InjectedEnvironment } from '../../../src/util/injected.ts'
import { MinRanks } from '../../min-ranks.ts'
import type { RankRange } from '../../rank-range.ts'
import { failsAgain, type Restarts } from '../../restarts.ts'
import { OpenTabs, type TabFailure, type TabRun, type TabsOptions } from '../../tabs.ts'
import { type ModulePage, moduleTab } from '../tabs.ts'
import { ElasticGroups, type Place } from './elastic-groups.ts'

/** A rank notices the end of its group only when it next uses the group. units: ms. */
const answerMs = 60_000

export interface ElasticTabsOptions
  extends Omit<TabsOptions, 'onFailure'>,
    Omit<ModulePage, 'onEnd' | 'onNextGroup' | 'onTrained'> {
  range: RankRange
  restarts: Restarts
  /** How long ranks wait until enough of them are there. units: ms. */
  joinTimeoutMs: number
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
  const { range, restarts, joinTimeoutMs, environmentOf, nextNumber, log, onFailure } = options
  const { min, max } = range
  const { variables, args } = environmentOf({ group: 0, rank: 0, worldSize: max })
  const early = Object.entries(variables).filter(([name]) => !groupVariables.has(name))
  const open = (rank: number) => {
    const environment = { variables: Object.fromEntries(early), args }
    groups.opened(tabs.open(moduleTab({ rank, environment }, page)))
  }
  const groups = new ElasticGroups<TabRun>({
    min,
    max,
    nextNumber,
    answerMs,
    onFormed: ({ worldSize }, inside, others) => {
      if (groups.hasBegun) log(`continuing with ${worldSize} rank${worldSize === 1 ? '' : 's'}`)
      clearTimeout(late)
      for (const [rank, tab] of [...inside, ...others].entries()) tab.rank = rank
    },
    onLeft: (why) => log(why.split('\n')[0]),
    onEndedEarly: () =>
      fail({
        rank: null,
        code: 'config.invalid',
        text: 'launcher: the program of a tab ended without runElastic, and other tabs wait for it there. Call runElastic on all ranks, and await it.',
      }),
    onSilent: (tab) =>
      tab.fail(
        'peer.timeout',
        `runElastic: its function did not end within ${answerMs / 1000} s of the end of its group. Commit more often, and do long work outside runElastic.`,
      ),
    onDone: (newcomers) => {
      for (const tab of newcomers) tab.abandon()
    },
  })
  const fail = (failure: TabFailure) => {
    end()
    onFailure(failure)
    tabs.abandon()
  }
  const endBy = (error: Error & { code?: string }) =>
    fail({ rank: null, code: error.code ?? '', text: error.message })
  const minRanks = new MinRanks({
    min,
    waitMs: joinTimeoutMs,
    waitFlag: '--rdzv-conf join_timeout',
    onNotice: log,
    onEnd: endBy,
  })
  const late = setTimeout(
    () =>
      fail({
        rank: null,
        code: 'peer.timeout',
        text: `launcher: ${groups.count} tabs are open, but not all ${max} have called runElastic within ${joinTimeoutMs / 1000} s. Load less before it, or raise --rdzv-conf join_timeout.`,
      }),
    joinTimeoutMs,
  )
  const end = () => {
    clearTimeout(late)
    minRanks.stop()
    groups.stop()
  }
  const countRanks = () => {
    if (groups.hasBegun && !groups.hasEndedWell)
      minRanks.count(groups.ranks, groups.count - groups.ranks)
  }
  const endTab = (tab: TabRun) => {
    groups.ended(tab)
    if (groups.hasEndedWell) minRanks.stop()
  }
  const lose = (failure: TabFailure, tab: TabRun) => {
    const { rank, code, text } = failure
    const [line] = text.split('\n')
    const isNew = groups.isNew(tab)
    const others = groups.ranks - (isNew ? 0 : 1)
    if (!groups.has(tab) || others === 0 || (!isNew && failsAgain(code, true))) {
      fail(failure)
      return
    }
    log(`rank ${rank}: ${line}`)
    if (line !== text) options.onSay(tab, 'stderr', text)
    const restart = groups.hasEndedWell ? null : restarts.take()
    log(restart ? `${restart}: its tab is opened again` : 'no tab is opened in its place')
    if (restart) open(tab.rank)
    groups.lost(tab, `rank ${rank}: ${line}`)
    countRanks()
  }
  const tabs = new OpenTabs({
    ...options,
    onFailure: (failure, tab) => {
      if (tab) lose(failure, tab)
      else fail(failure)
    },
  })
  const page: ModulePage = {
    ...options,
    onEnd: (tab) => endTab(tab),
    onTrained: (tab) => endTab(tab),
    onNextGroup: async (tab, left) => {
      const asked = groups.ask(tab, left)
      countRanks()
      return environmentOf(await asked).variables
    },
  }
  for (let rank = 0; rank < max; rank++) open(rank)
  try {
    await tabs.ended()
  } finally {
    end()
  }
}
