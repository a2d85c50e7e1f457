import type { Page } from 'playwright'
import { messageOf } from '../src/util/errors.ts'
import type { Host } from './host.ts'
import { joinTabs } from './join-tabs.ts'
import type { RingTask, RingTimes } from './ring/protocol.ts'
import { failedRow, type PairOptions, type Place, pairRow, type Row } from './row.ts'

const kibi = 1024
const mebi = 1024 * kibi

/** Buffer sizes, and how many all-reduces make one sample: a single short one is too short for the clock. */
const sizes = [
  { sizeBytes: 64 * kibi, repeats: 16 },
  { sizeBytes: mebi, repeats: 4 },
  { sizeBytes: 4 * mebi, repeats: 2 },
  { sizeBytes: 16 * mebi, repeats: 1 },
]
/** From here on the ring is to carry this share of what the bare channels do. */
const goal = { fromBytes: mebi, ratio: 0.85 }
const worldSizes = [2, 3]

/**
 * Ring bus bandwidth, 2(N-1)/N x bytes / time, against what the same data channels carry bare.
 *
 * Each tab has a separate browser context; the slowest rank's time counts, for both.
 */
export async function ringRows(
  host: Host,
  place: Place,
  rounds: number,
  note: (line: string) => void,
): Promise<Row[]> {
  const rows: Row[] = []
  for (const worldSize of worldSizes) {
    const options = sizes.map((size) => pairOptions(worldSize, size.sizeBytes))
    let pages: Page[] = []
    try {
      note(`ring: joining ${worldSize} tabs`)
      pages = await joinTabs(host, worldSize)
      for (const [index, size] of sizes.entries()) {
        const task: RingTask = { ...size, rounds, warmUps: 2 }
        note(`ring: ${options[index].row}, ${rounds} pairs`)
        const byRank = await Promise.all(
          pages.map((page) =>
            page.evaluate((given) => window.ringTab.ranks[0].measure(given), task),
          ),
        )
        rows.push(ringRow(options[index], place, worldSize, size.sizeBytes, byRank))
      }
    } catch (thrown) {
      const missing = options.slice(rows.filter(({ ranks }) => ranks === worldSize).length)
      for (const one of missing) rows.push(failedRow(one, place, messageOf(thrown)))
    } finally {
      for (const page of pages) await page.context().close()
    }
  }
  return rows
}

function pairOptions(worldSize: number, sizeBytes: number): PairOptions {
  const size = sizeBytes >= mebi ? `${sizeBytes / mebi} MiB` : `${sizeBytes / kibi} KiB`
  return {
    row: `ring ${worldSize} tabs, ${size}`,
    peer: 'the same raw channels',
    unit: 'MiB/s',
    better: 'higher',
    goal: sizeBytes >= goal.fromBytes ? goal.ratio : undefined,
    extra: { ranks: worldSize, sizeBytes },
  }
}

function ringRow(
  options: PairOptions,
  place: Place,
  worldSize: number,
  sizeBytes: number,
  byRank: readonly RingTimes[],
): Row {
  const busMebi = (2 * (worldSize - 1) * sizeBytes) / worldSize / mebi
  const bandwidths = (kind: 'ringMs' | 'rawMs') =>
    byRank[0][kind].map((_, round) => {
      const slowest = Math.max(...byRank.map((times) => times[kind][round]))
      return busMebi / (slowest / 1000)
    })
  const { frames } = byRank[0]
  const extra = { ...options.extra, dataFrames: frames.data, controlFrames: frames.control }
  return pairRow({ ...options, extra }, place, bandwidths('ringMs'), bandwidths('rawMs'))
}
