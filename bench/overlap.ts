import { Command } from 'commander'
import type { Browser } from 'playwright'
import type { AdapterChoice } from '../node/chromium.ts'
import { servePages } from '../node/own-pages.ts'
import { launchForTraining } from '../node/training-browser.ts'
import { markdownTable } from '../src/util/markdown.ts'
import type { OverlapTask } from '../tests/e2e/fixtures/overlap-page.ts'
import {
  type OverlapRounds,
  openOverlapTabs,
  overlapPage,
  timeFirstBuckets,
  timeRounds,
} from '../tests/support/overlap-tabs.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, atLeast, jsonOption, saveOption } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { median, pairRatios, spread } from './statistics.ts'

/** `npm run bench -- overlap`: a step that is exchanged while backward runs beside one that is exchanged afterwards, over slowed links. */

interface Flags extends OverlapTask {
  ranks: number
  rounds: number
  share: number
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- overlap')
  .description(
    'Times a training step with and without overlap, in turns, between tabs whose links the browser slows down until the exchange takes as long as the computation.',
  )
  .option('--ranks <count>', 'number of tabs, each in its own browser', atLeast(2), 2)
  .option(
    '--rounds <count>',
    'number of rounds, each starting with another kind of step',
    atLeast(7),
    11,
  )
  .option(
    '--share <factor>',
    'time of the exchange, relative to that of the computation',
    atLeast(0.01),
    1,
  )
  .option('--width <elements>', 'width of each layer of the MLP', atLeast(1), 128)
  .option('--layers <count>', 'number of layers of the MLP', atLeast(2), 16)
  .option('--batch <samples>', 'samples per rank', atLeast(1), 2048)
  .option('--bucket-cap-mb <MiB>', 'largest bucket', atLeast(0.001), 0.07)
  .addOption(adapterOption())
  .addOption(jsonOption('the rounds as a JSON object'))
  .addOption(saveOption())

/** What an overlapped step is to take of the other. */
const goal = 0.8

export async function benchOverlap(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const { width, layers, batch, bucketCapMb } = flags
  const load = loadNow()
  const toClose: { close(): Promise<void> }[] = []
  const close = async () => {
    for (const one of toClose.splice(0).reverse()) await one.close()
  }
  await closeAfter(close, async () => {
    note('building the page')
    const served = await servePages(overlapPage)
    toClose.push(served)
    const browsers: Browser[] = []
    for (let rank = 0; rank < flags.ranks; rank++) {
      const options = { isHeaded: false, timesKernels: false }
      browsers.push(await launchForTraining(flags.adapter, options, note))
      toClose.push(browsers[rank])
    }
    note('timing the step alone, then joining over slowed links')
    const task = { width, layers, batch, bucketCapMb }
    const url = `${served.localUrl}${overlapPage}`
    const opened = await openOverlapTabs(browsers, url, flags.ranks, task, flags.share)
    note(`${flags.rounds} rounds`)
    const times = await timeRounds(opened.pages, flags.rounds)
    const firsts = await timeFirstBuckets(opened.pages, flags.rounds)
    const browser = browsers[0].version()
    const line = { ...flags, ...opened, pages: undefined, times, firsts, browser }
    const report = formatReport(flags, opened, times, firsts, browsers[0], load)
    const title = 'overlap'
    const nameParts = ['chromium', browser, title]
    await publish({ report, rows: [line], nameParts, title }, flags)
  })
}

function formatReport(
  { ranks, width, layers, batch }: Flags,
  { bytesPerSec, buckets, bytes, adapter }: Awaited<ReturnType<typeof openOverlapTabs>>,
  times: OverlapRounds,
  firsts: readonly number[],
  browser: Browser,
  load: string,
): string {
  const machine = machineLine('before the run', load)
  const heading = `${today()}, Chromium ${browser.version()}, ${adapter}, ${machine}. ${ranks} ranks, each in its own browser; an MLP of ${layers} layers of ${width}, ${batch} samples per rank; gradients of ${(bytes / 2 ** 20).toFixed(2)} MiB in ${buckets} buckets; each sends at most ${(bytesPerSec / 2 ** 20).toFixed(2)} MiB/s.`
  const ratios = pairRatios(times.overlap, times.apart)
  const row = (name: string, ms: readonly number[]) => [
    name,
    median(ms).toFixed(1),
    spread(ms)
      .map((one) => one.toFixed(1))
      .join(' to '),
  ]
  const table = markdownTable(
    ['slowest rank, ms', 'median', 'lowest to highest'],
    [
      row('step, exchanged while backward runs', times.overlap),
      row('step, exchanged after backward', times.apart),
      row('the same step of each rank alone', times.compute),
      row('the exchange alone', times.exchange),
      row('until the first bucket is ready', firsts),
    ],
  )
  const ratio = median(ratios)
  const share = median(times.exchange) / median(times.compute)
  const min = Math.max(median(firsts) + median(times.exchange), median(times.compute))
  return `${heading}\n\n${table}\n\nWith overlap / without: **${ratio.toFixed(3)}** (${spread(
    ratios,
  )
    .map((one) => one.toFixed(2))
    .join(
      ' to ',
    )}, ${ratios.length} rounds); goal ≤ ${goal}: ${ratio <= goal ? 'yes' : 'NO'}. Exchange / computation: ${share.toFixed(2)}. Given these, a step with overlap takes at least ${min.toFixed(1)} ms, ${(min / median(times.apart)).toFixed(2)} of one without.\n`
}
