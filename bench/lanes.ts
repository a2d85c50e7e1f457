import { Command } from 'commander'
import type { Page } from 'playwright'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { saveOption } from './command/flags.ts'
import { machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { type Host, openHost } from './host.ts'
import { joinTabs } from './join-tabs.ts'
import type { CollectiveTask } from './ring/protocol.ts'
import { median, pairRatios, spread } from './statistics.ts'

/** `npm run bench -- lanes`: what several connections carry over a long way, beside one. */

const mebi = 1024 * 1024

const numbers = (text: string) => text.split(',').map(Number)

interface Flags {
  lanes: number[]
  latencies: number[]
  size: number
  rounds: number
  save: boolean
}

const command = new Command('npm run bench -- lanes')
  .description(
    "Times all-reduces of two tabs over WebRTC, one pair of tabs for each number of lanes, in turns. The delay is the browser's own emulation.",
  )
  .option('--lanes <counts>', 'numbers of connections per link', numbers, [1, 2, 4, 8])
  .option(
    '--latencies <ms>',
    'delays of the packets of each tab, in and out: a quarter of the round trip',
    numbers,
    [0, 5, 20],
  )
  .option('--size <MiB>', 'size of the buffer', Number, 2)
  .option(
    '--rounds <count>',
    'number of rounds, each starting with another number of lanes',
    Number,
    7,
  )
  .addOption(saveOption())

export async function benchLanes(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const host = await openHost('software', note)
  await closeAfter(
    () => host.close(),
    async () => {
      const rows: string[][] = []
      for (const latencyMs of flags.latencies) rows.push(...(await rowsAt(host, latencyMs, flags)))
      const title = 'lanes'
      const nameParts = ['chromium', host.browser.version(), title]
      await publish({ report: formatRows(rows, host, flags), nameParts, title }, flags)
    },
  )
}

/** The table's rows for one delay, one a number of lanes. */
async function rowsAt(host: Host, latencyMs: number, flags: Flags): Promise<string[][]> {
  const pairs = new Map<number, Page[]>()
  for (const lanes of flags.lanes) {
    note(`${latencyMs} ms, ${lanes} lanes: joining 2 tabs`)
    pairs.set(lanes, await joinTabs(host, 2, { lanes, latencyMs }))
  }
  const [first] = flags.lanes
  const [ping] = await Promise.all(
    pairs
      .get(first)!
      .map((page) =>
        page.evaluate((task) => window.ringTab.ranks[0].ping(task), { sizeBytes: 64, rounds: 20 }),
      ),
  )
  const times = await timeInTurns(pairs, flags)
  for (const pages of pairs.values()) for (const page of pages) await page.context().close()
  return flags.lanes.map((lanes) => {
    const ms = times.get(lanes)!
    const ratios = pairRatios(times.get(first)!, ms)
    return [
      median(ping.slice(5)).toFixed(1),
      String(lanes),
      median(ms).toFixed(0),
      spread(ms)
        .map((one) => one.toFixed(0))
        .join(' to '),
      ((flags.size * mebi) / 1000 / median(ms)).toFixed(2),
      median(ratios).toFixed(2),
    ]
  })
}

function formatRows(rows: readonly string[][], { browser }: Host, { lanes, size }: Flags): string {
  const heading = `${today()}, Chromium ${browser.version()}, ${machineLine('at the end')}`
  const table = markdownTable(
    [
      'round trip, ms',
      'lanes',
      'time, ms',
      'lowest to highest',
      'MB/s each way',
      `rate / that of ${lanes[0]}`,
    ],
    rows,
  )
  return `${heading}; two tabs of one machine, all-reduce of ${size} MiB, delay by CDP.\n\n${table}\n`
}

/** Milliseconds of one all-reduce by number of lanes, one a round. */
async function timeInTurns(
  pairs: ReadonlyMap<number, Page[]>,
  { lanes, rounds, size }: Flags,
): Promise<Map<number, number[]>> {
  const times = new Map(lanes.map((one) => [one, [] as number[]]))
  for (let round = 0; round < rounds; round++)
    for (let at = 0; at < lanes.length; at++) {
      const one = lanes[(round + at) % lanes.length]
      const task: CollectiveTask = {
        operation: 'allReduce',
        algorithm: 'ring',
        sizeBytes: size * mebi,
        rounds: 1,
        repeats: 1,
        warmUps: round === 0 ? 1 : 0,
      }
      const byRank = await Promise.all(
        pairs
          .get(one)!
          .map((page) => page.evaluate((given) => window.ringTab.ranks[0].time(given), task)),
      )
      times.get(one)!.push(Math.max(...byRank.map(([ms]) => ms)))
    }
  return times
}
