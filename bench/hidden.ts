import { Command } from 'commander'
import { markdownTable } from '../src/util/markdown.ts'
import { type HiddenTabs, openHiddenTabs } from '../tests/support/hidden-tabs.ts'
import { closeAfter } from './command/close-after.ts'
import { countOf, jsonOption, saveOption, someOf } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { median, spread } from './statistics.ts'

/** `npm run bench -- hidden`: the rate at which tabs train that nobody sees, past all that the browser then does, beside that of seen ones. */

const transports = ['webrtc', 'port'] as const
type Transport = (typeof transports)[number]

interface Flags {
  ranks: number
  rounds: number
  visible: number
  hidden: number
  transports: Transport[]
  json: boolean
  save: boolean
}

/** Chromium is hardest on pages that have been hidden for so long. units: s. */
const graceSec = 300

const command = new Command('npm run bench -- hidden')
  .description(
    'Trains in tabs of a headed Chromium (under Xvfb, Linux only), without the flags that keep hidden tabs running: visible, then all hidden, then visible again.',
  )
  .option('--ranks <count>', 'number of tabs', countOf(1), 2)
  .option('--rounds <count>', 'number of times that all tabs are hidden', countOf(1), 1)
  .option('--visible <seconds>', 'seconds measured before and after', countOf(1), 30)
  .option(
    '--hidden <seconds>',
    `seconds measured after the first ${graceSec} hidden ones`,
    countOf(1),
    60,
  )
  .option('--transports <names>', 'how tabs are linked', someOf(transports), [...transports])
  .addOption(jsonOption())
  .addOption(saveOption())

/** One time that all tabs were hidden. units: steps a second; how often a page's timer of 50 ms ran in a second. */
interface Line {
  transport: Transport
  ranks: number
  browser: string
  flags: readonly string[]
  /** The mean of before and after. */
  visible: number
  visibleSpread: [number, number]
  /** In the first five minutes, the median of their halves. */
  early: number
  /** Beyond them. */
  late: number
  /** Of the rate while visible. */
  ratio: number
  timersVisible: number
  timersEarly: number
  timersLate: number
}

export async function benchHidden(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const lines: Line[] = []
  for (const transport of flags.transports) {
    note(`${transport}: opening ${flags.ranks} tabs that train`)
    const tabs = await openHiddenTabs(flags.ranks, [], transport)
    await closeAfter(
      () => tabs.close(),
      async () => {
        for (let round = 0; round < flags.rounds; round++)
          lines.push(await measureLine(tabs, transport, flags))
      },
    )
  }
  const nameParts = ['chromium', lines[0].browser, 'hidden']
  const report = formatLines(lines, load)
  await publish({ report, rows: lines, nameParts, title: 'hidden tabs' }, flags)
}

async function measureLine(
  tabs: HiddenTabs,
  transport: Transport,
  { ranks, visible, hidden }: Flags,
): Promise<Line> {
  note(`${transport}: visible for ${visible} s`)
  const before = await tabs.measure(visible)
  await tabs.hide()
  note(`${transport}: hidden for ${graceSec + hidden} s`)
  const early = [await tabs.measure(graceSec / 2), await tabs.measure(graceSec / 2)]
  const late = await tabs.measure(hidden)
  const states = await tabs.states()
  if (states.some((state) => state !== 'hidden'))
    throw new Error(`expected all tabs hidden to the end, got ${states}`)
  await tabs.show()
  note(`${transport}: visible for ${visible} s`)
  const after = await tabs.measure(visible)
  const seen = [before.stepsPerSec, after.stepsPerSec]
  const mean = (seen[0] + seen[1]) / 2
  return {
    transport,
    ranks,
    browser: tabs.headed.browser.version(),
    flags: tabs.headed.flags,
    visible: mean,
    visibleSpread: spread(seen),
    early: median(early.map(({ stepsPerSec }) => stepsPerSec)),
    late: late.stepsPerSec,
    ratio: late.stepsPerSec / mean,
    timersVisible: Math.min(...before.timersPerSec),
    timersEarly: Math.max(...early.flatMap(({ timersPerSec }) => timersPerSec)),
    timersLate: Math.max(...late.timersPerSec),
  }
}

/** What a hidden tab is to reach of its rate while it is seen. */
const goal = 0.9

function formatLines(lines: readonly Line[], load: string): string {
  const [{ browser }] = lines
  const machine = machineLine('before the run', load)
  const heading = `${today()}, Chromium ${browser} with windows under Xvfb, ${machine}; **software adapter**. Steps per second of the MLP, batch 64.`
  const table = markdownTable(
    [
      'links',
      'tabs',
      'visible',
      'before and after',
      'hidden, first 5 min',
      'hidden, later',
      'later / visible',
      'goal',
      "runs per second of the page's 50 ms timer: visible, first 5 min, later",
    ],
    lines.map((line) => [
      line.transport,
      line.ranks,
      line.visible.toFixed(1),
      line.visibleSpread.map((rate) => rate.toFixed(1)).join(' to '),
      line.early.toFixed(1),
      line.late.toFixed(1),
      line.ratio.toFixed(3),
      `≥ ${goal}: ${line.ratio >= goal ? 'yes' : 'NO'}`,
      [line.timersVisible, line.timersEarly, line.timersLate]
        .map((rate) => rate.toFixed(2))
        .join(', '),
    ]),
  )
  return `${heading}\n\n${table}\n`
}
