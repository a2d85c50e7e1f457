import { Command } from 'commander'
import type { Browser } from 'playwright'
import { openTrainingHost } from '../node/training-host.ts'
import { chooseAlgorithm } from '../src/peer/algorithms/algorithm-choice.ts'
import { markdownTable } from '../src/util/markdown.ts'
import type { SumKind } from '../tests/e2e/fixtures/machines-page.ts'
import { machinesPage, openMachineTabs, timeSums } from '../tests/support/machine-tabs.ts'
import { closeAfter } from './command/close-after.ts'
import { saveOption } from './command/flags.ts'
import { machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { median, pairRatios, spread } from './statistics.ts'

/** `npm run bench -- machines`: sums over machines that are far from each other, as the group chooses beside the ring and direct exchange. */

const mebi = 1024 * 1024
const kinds = ['own', 'ring', 'direct'] as const satisfies SumKind[]

const numbers = (text: string) => text.split(',').map(Number)

interface Flags {
  tabs: number[]
  latencies: number[]
  sizes: number[]
  rounds: number
  save: boolean
}

const command = new Command('npm run bench -- machines')
  .description(
    'Times all-reduces of tabs on several machines: those of one machine are linked by ports, the others by WebRTC with a delay that the browser emulates. The group measures its links and chooses an algorithm; ring and direct run over the same links, in turns.',
  )
  .option('--tabs <counts>', 'number of tabs on each machine', numbers, [2, 2])
  .option(
    '--latencies <ms>',
    'delays of the packets of each tab, in and out: a quarter of the round trip',
    numbers,
    [5, 20],
  )
  .option('--sizes <MiB>', 'sizes of the buffer', numbers, [0.25, 1, 4])
  .option('--rounds <count>', 'number of rounds, each starting with another algorithm', Number, 9)
  .addOption(saveOption())

export async function benchMachines(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  note('building the page')
  const options = { adapter: 'software', note, pages: [machinesPage] } as const
  const { served, browser, close } = await openTrainingHost(options)
  await closeAfter(close, async () => {
    const rows: string[][] = []
    for (const latencyMs of flags.latencies)
      rows.push(...(await rowsAt(browser, `${served.localUrl}${machinesPage}`, latencyMs, flags)))
    const title = 'machines'
    const nameParts = ['chromium', browser.version(), title]
    await publish({ report: formatRows(rows, browser, flags), nameParts, title }, flags)
  })
}

/** The table's rows for one delay: one a size and algorithm. */
async function rowsAt(
  browser: Browser,
  url: string,
  latencyMs: number,
  { tabs: counts, sizes, rounds }: Flags,
): Promise<string[][]> {
  note(`${latencyMs} ms: joining ${counts.join(' + ')} tabs`)
  const tabs = await openMachineTabs(browser, url, counts, latencyMs)
  const [{ choice }] = await Promise.all(
    tabs.pages.map((page) => page.evaluate(() => globalThis.machineTab.measure())),
  )
  const layout = { isFullyLinked: true, machines: tabs.places[0].machines }
  const chosen = (size: number) => chooseAlgorithm('allReduce', size * mebi, layout, choice)
  const rows: string[][] = []
  for (const size of sizes) {
    const times = await timeSums(tabs, kinds, size * mebi, rounds)
    for (const kind of kinds)
      rows.push([
        String(4 * latencyMs),
        String(size),
        kind === 'own' ? `${chosen(size)} (chosen)` : kind,
        median(times[kind]).toFixed(0),
        spread(times[kind])
          .map((ms) => ms.toFixed(0))
          .join(' to '),
        median(pairRatios(times[kind], times.ring)).toFixed(2),
      ])
  }
  for (const context of browser.contexts()) await context.close()
  return rows
}

function formatRows(rows: readonly string[][], browser: Browser, { tabs: counts }: Flags): string {
  const table = markdownTable(
    ['round trip, ms', 'MiB', 'algorithm', 'time, ms', 'lowest to highest', 'relative to the ring'],
    rows,
  )
  return `${today()}, Chromium ${browser.version()}, ${machineLine('at the end')}; all-reduces of ${counts.join(' + ')} tabs on ${counts.length} simulated machines, delay by CDP. "(chosen)" is what the group chose after measuring; the last column is the median of ratios within a round.

${table}
`
}
