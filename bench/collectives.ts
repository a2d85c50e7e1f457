import { Command, InvalidArgumentError } from 'commander'
import type { Page } from 'playwright'
import { type Algorithm, algorithms } from '../src/peer/announcement.ts'
import { hasAlgorithm } from '../src/peer/plan-collective.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { jsonOption, saveOption, someOf } from './command/flags.ts'
import { machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { type Host, openHost } from './host.ts'
import { joinTabs } from './join-tabs.ts'
import {
  type CollectiveTask,
  type HopsTask,
  type TimedOperation,
  timedOperations,
} from './ring/protocol.ts'
import { median, spread } from './statistics.ts'

/** `npm run bench -- collectives`: time, algorithm and bus bandwidth by size, backend and operation, as nccl-tests prints them. */

const kibi = 1024
const mebi = 1024 * kibi
const backends = ['webrtc', 'port', 'relay'] as const
type Backend = (typeof backends)[number]

interface Flags {
  ranks: number[]
  backends: Backend[]
  operations: TimedOperation[]
  sizes: number[]
  rounds: number
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- collectives')
  .description(
    'Times collectives between tabs by size, backend and algorithm. Bus bandwidth is as in nccl-tests: what a link carries, whatever the number of ranks.',
  )
  .option('--ranks <counts>', 'tabs', someOf([2, 3, 4, 5, 6]), [2, 3])
  .option('--backends <names>', 'how tabs are linked', someOf(backends), [...backends])
  .option('--operations <names>', 'which collectives', someOf(timedOperations), ['allReduce'])
  .option(
    '--sizes <bytes>',
    'bytes of the whole buffer, K and M for 1024 and 1024 x 1024',
    (text) => text.split(',').map(sizeOf),
    [4 * kibi, 64 * kibi, 256 * kibi, mebi, 4 * mebi, 16 * mebi],
  )
  .option('--rounds <count>', 'rounds, each beginning with another algorithm', Number, 9)
  .addOption(jsonOption())
  .addOption(saveOption())

function sizeOf(text: string): number {
  const [, digits, unit] = /^(\d+)([KM]?)$/.exec(text) ?? []
  const bytes = Number(digits) * (unit === 'M' ? mebi : unit === 'K' ? kibi : 1)
  if (!digits || bytes % 4 !== 0 || bytes === 0)
    throw new InvalidArgumentError(`Expected multiples of 4 as 4K or 16M, got "${text}".`)
  return bytes
}

/** One line of the table. units: ms, and MB (10^6 bytes) a second. */
interface Line {
  backend: Backend
  ranks: number
  operation: TimedOperation
  sizeBytes: number
  algorithm: Algorithm
  ms: number
  msSpread: [number, number]
  algorithmBandwidth: number
  busBandwidth: number
  /** What it is held against; where messages are small. */
  floor?: Floor | undefined
}

/** Of the bare links, on the same tabs. units: ms. */
interface Floor {
  /** Half of an idle round trip between two tabs, for each hop. */
  tripsMs: number
  /** All hops, with all their messages at once: the median of as many samples, taken in turns with the collective's. */
  hopsMs: number
}

/** What nccl-tests multiplies the algorithm's bandwidth by. */
const busFactor = (operation: TimedOperation, ranks: number): number =>
  operation === 'allReduce'
    ? (2 * (ranks - 1)) / ranks
    : operation === 'broadcast'
      ? 1
      : (ranks - 1) / ranks

export async function benchCollectives(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const host = await openHost('auto', note)
  await closeAfter(
    () => host.close(),
    async () => {
      const lines: Line[] = []
      for (const backend of flags.backends)
        for (const ranks of flags.ranks) lines.push(...(await linesOf(host, backend, ranks, flags)))
      const title = 'collectives'
      const nameParts = ['chromium', host.browser.version(), title]
      await publish({ report: formatLines(lines, host), rows: lines, nameParts, title }, flags)
    },
  )
}

async function linesOf(
  host: Host,
  backend: Backend,
  ranks: number,
  { operations, sizes, rounds }: Flags,
): Promise<Line[]> {
  note(`${backend}: joining ${ranks} tabs`)
  const pages = await joinTabs(host, ranks, { transport: backend })
  const lines: Line[] = []
  try {
    for (const operation of operations)
      for (const sizeBytes of sizes) {
        const names = algorithms.filter(
          // A ring of more than three ranks has not the links for the others; one shot is for what is small.
          (name) =>
            hasAlgorithm(operation, name) &&
            (name === 'ring' || ranks <= 3) &&
            (name !== 'oneShot' || sizeBytes <= mebi) &&
            (name !== 'hierarchical' || ranks > 2),
        )
        note(`${backend}, ${ranks} tabs: ${operation} of ${formatBytes(sizeBytes)}`)
        const times = new Map(names.map((name) => [name, [] as number[]]))
        const bareTimes = new Map(names.map((name) => [name, [] as number[]]))
        const isFloored = (algorithm: Algorithm) =>
          operation !== 'broadcast' && algorithm !== 'hierarchical' && sizeBytes <= 64 * kibi
        const repeats = Math.max(1, Math.min(32, Math.floor((4 * mebi) / sizeBytes)))
        for (let round = 0; round < rounds; round++)
          for (let at = 0; at < names.length; at++) {
            const algorithm = names[(round + at) % names.length]
            const warmUps = round === 0 ? 1 : 0
            const task = { operation, algorithm, sizeBytes, rounds: 1, repeats, warmUps }
            const hops = { ...hopsOf(algorithm, operation, ranks, sizeBytes), repeats }
            const isHeldAgainstBare = isFloored(algorithm)
            if (isHeldAgainstBare && round % 2 === 1)
              bareTimes.get(algorithm)!.push(await slowestHops(pages, hops))
            times.get(algorithm)!.push(await slowest(pages, task))
            if (isHeldAgainstBare && round % 2 === 0)
              bareTimes.get(algorithm)!.push(await slowestHops(pages, hops))
          }
        for (const [algorithm, ms] of times) {
          const { hops, sizeBytes: hopBytes } = hopsOf(algorithm, operation, ranks, sizeBytes)
          const floor = isFloored(algorithm)
            ? {
                tripsMs: hops * (await oneWayMs(pages, hopBytes)),
                hopsMs: median(bareTimes.get(algorithm)!),
              }
            : undefined
          const middle = median(ms)
          const algorithmBandwidth = sizeBytes / middle / 1000
          lines.push({
            backend,
            ranks,
            operation,
            sizeBytes,
            algorithm,
            ms: middle,
            msSpread: spread(ms),
            algorithmBandwidth,
            busBandwidth: algorithmBandwidth * busFactor(operation, ranks),
            floor,
          })
        }
      }
  } finally {
    for (const context of new Set(pages.map((page) => page.context()))) await context.close()
  }
  return lines
}

async function slowest(pages: readonly Page[], task: CollectiveTask): Promise<number> {
  const byRank = await Promise.all(
    pages.map((page) => page.evaluate((given) => window.ringTab.time(given), task)),
  )
  return Math.max(...byRank.map(([ms]) => ms))
}

async function slowestHops(pages: readonly Page[], task: HopsTask): Promise<number> {
  const byRank = await Promise.all(
    pages.map((page) => page.evaluate((given) => window.ringTab.hops(given), task)),
  )
  return Math.max(...byRank.map(([ms]) => ms))
}

/** Half of a round trip of the bare link between ranks 0 and 1, with nothing else under way. */
async function oneWayMs(pages: readonly Page[], sizeBytes: number): Promise<number> {
  const [times] = await Promise.all(
    pages.map((page) =>
      page.evaluate((given) => window.ringTab.ping(given), { sizeBytes, rounds: 250 }),
    ),
  )
  // The first ones wake threads.
  return median(times.slice(50)) / 2
}

const formatBytes = (bytes: number): string =>
  bytes >= mebi ? `${bytes / mebi} MiB` : bytes >= kibi ? `${bytes / kibi} KiB` : `${bytes} B`

/** Messages that wait for one another: how many, how long each is, and where each rank sends one. */
function hopsOf(
  algorithm: Algorithm,
  operation: TimedOperation,
  ranks: number,
  sizeBytes: number,
): Omit<HopsTask, 'repeats'> {
  const phases = operation === 'allReduce' ? 2 : 1
  // Its hops are not alike: no floor is made of them.
  if (algorithm === 'hierarchical') return { hops: 2 * phases, sizeBytes, to: 'all' }
  if (algorithm === 'oneShot') return { hops: 1, sizeBytes, to: 'all' }
  const share = Math.ceil(sizeBytes / ranks)
  if (algorithm === 'direct') return { hops: phases, sizeBytes: share, to: 'all' }
  return { hops: phases * (ranks - 1), sizeBytes: share, to: 'next' }
}

function formatLines(lines: readonly Line[], { browser }: Host): string {
  const heading = `${today()}, Chromium ${browser.version()}, ${machineLine('at the end')}; tabs of one machine.`
  const table = markdownTable(
    [
      'backend',
      'ranks',
      'operation',
      'size',
      'algorithm',
      'time, ms',
      'lowest to highest',
      'algbw, MB/s',
      'busbw, MB/s',
      'hops',
      'x its round trips',
      'x its bare hops',
    ],
    lines.map((line) => {
      const { hops } = hopsOf(line.algorithm, line.operation, line.ranks, line.sizeBytes)
      const times = (ms: number | undefined) => (ms === undefined ? '' : (line.ms / ms).toFixed(2))
      return [
        line.backend,
        line.ranks,
        line.operation,
        formatBytes(line.sizeBytes),
        line.algorithm,
        line.ms.toFixed(3),
        line.msSpread.map((ms) => ms.toFixed(3)).join(' to '),
        line.algorithmBandwidth.toFixed(1),
        line.busBandwidth.toFixed(1),
        hops,
        times(line.floor?.tripsMs),
        times(line.floor?.hopsMs),
      ]
    }),
  )
  return `${heading}\n\nRound trips: hops x half an idle round trip of a bare message of the hop's size between two of the tabs. Bare hops: as many hops of bare messages on all links at once, each rank sending and awaiting what the algorithm's ranks do, measured in turns with it.\n\n${table}\n`
}
