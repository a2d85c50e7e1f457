import { nextGroupName } from '../../src/distributed/launcher/next-group.ts'
import { type Progress, progressName } from '../../src/distributed/launcher/progress.ts'
import { endName, type RankEnd } from '../../src/distributed/launcher/rank-end.ts'
import { deviceName } from '../../src/util/call-launcher.ts'
import { formatRanks } from '../../src/util/format-ranks.ts'
import { type InjectedEnvironment, injectedName } from '../../src/util/injected.ts'
import { launcherParameter, type SwitchInputs } from '../../src/util/switches.ts'
import { OpenTabs, type RankTab, type TabFailure, type TabRun, type TabsOptions } from '../tabs.ts'

/** A rank of a module, and its surroundings. */
export interface ModuleRank {
  /** Of an elastic run: that of the newest group; of a tab in none, a number that no other tab has. */
  rank: number
  environment: InjectedEnvironment
}

export interface ModulePage {
  /** The server's address, with its final slash; `rank.html` is there. */
  url: string
  switches: SwitchInputs
  onProgress: (rank: number, progress: Progress) => void
  /** Takes what a rank computes on, and why, when that is news. */
  onDevice: (rank: number, text: string) => void
  /** Called when a rank's program has ended well. */
  onEnd?: (tab: TabRun) => void
  /** Of an elastic run: a rank asks for its next group; `left`: why it has left the one before. Resolves with the variables of the next. */
  onNextGroup?: (tab: TabRun, left: string | undefined) => Promise<Readonly<Record<string, string>>>
  /** Of an elastic run: training has ended well on a rank, whose program may do more. */
  onTrained?: (tab: TabRun) => void
}

/** Returns the tab of a rank whose page, src/rank.ts, runs a module. */
export function moduleTab({ rank, environment }: ModuleRank, page: ModulePage): RankTab {
  const { url, switches, onProgress, onDevice, onEnd, onNextGroup, onTrained } = page
  const query = new URLSearchParams()
  if (Object.keys(switches).length > 0) query.set(launcherParameter, JSON.stringify(switches))
  const devices = new Set<string>()
  const end = (tab: TabRun, words: RankEnd) => {
    if (!words.isOk) return tab.fail(words.code, words.stack)
    const isFirst = !tab.hasEnded
    tab.abandon()
    if (isFirst) onEnd?.(tab)
  }
  return {
    rank,
    address: `${url}rank.html?${query}`,
    constants: { [injectedName]: environment },
    forWorkers: [progressName, deviceName],
    functions: (tab) => ({
      [progressName]: (json: string) => {
        if (!tab.hasEnded) onProgress(tab.rank, JSON.parse(json))
      },
      [deviceName]: (json: string) => {
        if (!devices.has(json)) onDevice(tab.rank, JSON.parse(json))
        devices.add(json)
      },
      [endName]: (json: string) => end(tab, JSON.parse(json)),
      ...(onNextGroup && {
        [nextGroupName]: async (words?: true | string) => {
          if (words !== true) return JSON.stringify(await onNextGroup(tab, words))
          onTrained?.(tab)
          return ''
        },
      }),
    }),
  }
}

/** Runs the ranks of a module in tabs; resolves when all have ended and are closed. */
export async function runTabs(
  ranks: readonly ModuleRank[],
  options: TabsOptions & ModulePage,
): Promise<void> {
  const ended: number[] = []
  const tabs = new OpenTabs({
    ...options,
    onFailure: (failure, tab) => options.onFailure(withEnded(failure, ended), tab),
  })
  const page = {
    ...options,
    onEnd: (tab: TabRun) => {
      ended.push(tab.rank)
      options.onEnd?.(tab)
    },
  }
  for (const rank of ranks) tabs.open(moduleTab(rank, page))
  await tabs.ended()
}

/** Says with a wait that was in vain which ranks could not come. */
function withEnded(failure: TabFailure, ended: readonly number[]): TabFailure {
  if (failure.code !== 'peer.timeout' || ended.length === 0) return failure
  const ranks = formatRanks(ended.toSorted((a, b) => a - b))
  return {
    ...failure,
    text: `${failure.text}\nThe program of ${ranks} had ended well before, without what the others waited for. Have all ranks call the same functions equally often.`,
  }
}
