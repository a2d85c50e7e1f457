import { mkdir, writeFile } from 'node:fs/promises'
import { cpus, loadavg } from 'node:os'
import { join } from 'node:path'
import { Command, InvalidArgumentError } from 'commander'
import { markdownTable } from '../src/util/markdown.ts'
import { type HiddenTabs, openHiddenTabs } from '../tests/support/hidden-tabs.ts'
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

const above = (least: number) => (text: string) => {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < least)
    throw new InvalidArgumentError(`Expected a whole number of at least ${least}.`)
  return value
}

/** Chromium is hardest on pages that have been hidden for so long. units: s. */
const graceSec = 300

const command = new Command('npm run bench -- hidden')
  .description(
    'Trains in tabs of a Chromium with windows (under Xvfb, Linux alone), without the flags that keep hidden tabs going: seen, all hidden, and seen again.',
  )
  .option('--ranks <count>', 'tabs', above(1), 2)
  .option('--rounds <count>', 'times that all tabs are hidden', above(1), 1)
  .option('--visible <seconds>', 'measured before and after', above(1), 30)
  .option('--hidden <seconds>', `hidden beyond the first ${graceSec}, measured`, above(1), 60)
  .option(
    '--transports <names>',
    'how tabs are linked',
    (text) =>
      text.split(',').map((part) => {
        const found = transports.find((one) => one === part)
        if (!found)
          throw new InvalidArgumentError(`Expected some of ${transports.join(', ')}, got ${part}.`)
        return found
      }),
    [...transports],
  )
  .option('--json', 'one JSON object a row on standard output', false)
  .option('--save', 'also write the table to bench/results/', false)

const note = (line: string) => process.stderr.write(`bench: ${line}\n`)

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
  const load = loadavg()[0].toFixed(1)
  const lines: Line[] = []
  for (const transport of flags.transports) {
    note(`${transport}: opening ${flags.ranks} tabs that train`)
    const tabs = await openHiddenTabs(flags.ranks, [], transport)
    const onInterrupt = () => {
      tabs.close().finally(() => process.exit(130))
    }
    process.once('SIGINT', onInterrupt)
    process.once('SIGTERM', onInterrupt)
    try {
      for (let round = 0; round < flags.rounds; round++)
        lines.push(await measureLine(tabs, transport, flags))
    } finally {
      process.off('SIGINT', onInterrupt)
      process.off('SIGTERM', onInterrupt)
      await tabs.close()
    }
  }
  const report = formatLines(lines, load)
  if (flags.json) for (const line of lines) process.stdout.write(`${JSON.stringify(line)}\n`)
  else process.stdout.write(report)
  if (flags.save) note(`saved ${await save(report, lines)}`)
}

async function measureLine(
  tabs: HiddenTabs,
  transport: Transport,
  { ranks, visible, hidden }: Flags,
): Promise<Line> {
  note(`${transport}: seen for ${visible} s`)
  const before = await tabs.measure(visible)
  await tabs.hide()
  note(`${transport}: hidden for ${graceSec + hidden} s`)
  const early = [await tabs.measure(graceSec / 2), await tabs.measure(graceSec / 2)]
  const late = await tabs.measure(hidden)
  const states = await tabs.states()
  if (states.some((state) => state !== 'hidden'))
    throw new Error(`expected all tabs hidden to the end, got ${states}`)
  await tabs.show()
  note(`${transport}: seen for ${visible} s`)
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
  const machine = `${cpus()[0]?.model.trim() || 'unknown CPU'}, ${cpus().length} cores, load average before the run ${load}`
  const heading = `${new Date().toISOString().slice(0, 10)}, Chromium ${browser} with windows under Xvfb, ${machine}; **software adapter**. Steps of the MLP, batch 64, a second.`
  const table = markdownTable(
    [
      'links',
      'tabs',
      'seen',
      'before and after',
      'hidden, first 5 min',
      'hidden, beyond',
      'beyond / seen',
      'goal',
      "page's timer of 50 ms, runs a second: seen, first 5 min, beyond",
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

async function save(report: string, lines: readonly Line[]): Promise<string> {
  const folder = join(import.meta.dirname, 'results')
  await mkdir(folder, { recursive: true })
  const date = new Date().toISOString().slice(0, 10)
  const file = join(folder, `${date}-chromium-${lines[0].browser}-hidden.md`)
  const json = lines.map((line) => JSON.stringify(line)).join('\n')
  await writeFile(file, `# ${date}: hidden tabs\n\n${report}\n\`\`\`json\n${json}\n\`\`\`\n`)
  return file
}
