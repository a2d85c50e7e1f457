import { Command, InvalidArgumentError } from 'commander'
import { type Algorithm, algorithms } from '../src/peer/algorithms/operations.ts'
import { hasAlgorithm } from '../src/peer/algorithms/plan-collective.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { jsonOption, saveOption, someOf } from './command/flags.ts'
import { machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { formRanks, type MeasuredBackend, measuredBackends, type Ranks } from './form-ranks.ts'
import { type Host, openHost } from './host.ts'
import { type HopsTask, type TimedOperation, timedOperations } from './ring/protocol.ts'
import { median, pairRatios, spread } from './statistics.ts'

/** `npm run bench -- collectives`: time, algorithm and bus bandwidth by size, backend and operation, as nccl-tests prints them. */

const kibi = 1024
const mebi = 1024 * kibi
/** Share of the bare channels' rate that a collective is to reach from this size on, on these numbers of tabs. */
const goal = { fromBytes: mebi, ratio: 0.85, ranks: [2, 3] }
/** How often the links are measured. */
const linksRounds = 5

interface Flags {
  ranks: number[]
  backends: MeasuredBackend[]
  operations: TimedOperation[]
  sizes: number[]
  rounds: number
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- collectives')
  .description(
    'Times collectives between tabs (local: workers of one tab) by size, backend and algorithm, in groups formed by initProcessGroup. Bus bandwidth is that of nccl-tests: what a link carries, independent of the number of ranks.',
  )
  .option('--ranks <counts>', 'numbers of tabs', someOf([2, 3, 4, 5, 6, 8, 12, 16]), [2, 3, 4])
  .option('--backends <names>', 'how tabs are linked', someOf(measuredBackends), [
    ...measuredBackends,
  ])
  .option('--operations <names>', 'collectives to time', someOf(timedOperations), ['allReduce'])
  .option(
    '--sizes <bytes>',
    'bytes of the whole buffer; K and M stand for 1024 and 1024 x 1024',
    (text) => text.split(',').map(sizeOf),
    [4 * kibi, 64 * kibi, 256 * kibi, mebi, 4 * mebi, 16 * mebi],
  )
  .option('--rounds <count>', 'number of rounds, each starting with another algorithm', Number, 9)
  .addOption(jsonOption())
  .addOption(saveOption())

function sizeOf(text: string): number {
  const [, digits, unit] = /^(\d+)([KM]?)$/.exec(text) ?? []
  const bytes = Number(digits) * (unit === 'M' ? mebi : unit === 'K' ? kibi : 1)
  if (!digits || bytes % 4 !== 0 || bytes === 0)
    throw new InvalidArgumentError(`Expected multiples of 4, for example 4K or 16M, got "${text}".`)
  return bytes
}

/** One line of the table. units: ms, and MB (10^6 bytes) a second. */
interface Line {
  backend: MeasuredBackend
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
  /** Bus bandwidth over that of the bare data channels under the same traffic, median of pairs; where messages are large. */
  ofRaw?: number | undefined
}

/** What `measureLinks` takes on the slowest rank, and finds. units: ms. */
interface LinksLine {
  backend: MeasuredBackend
  ranks: number
  ms: number
  msSpread: [number, number]
  oneShotMaxBytes: number
  directMaxBytes: number
  bytesPerMs: number
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
      const linksLines: LinksLine[] = []
      for (const backend of flags.backends)
        for (const size of flags.ranks) {
          note(`${backend}: joining ${size} ranks`)
          const ranks = await formRanks(host, size, backend)
          await closeAfter(
            () => ranks.close(),
            async () => {
              linksLines.push(await linksLineOf(ranks, backend))
              lines.push(...(await linesOf(ranks, backend, flags)))
            },
          )
        }
      const title = 'collectives'
      const nameParts = ['chromium', host.browser.version(), title]
      const report = formatLines(lines, linksLines, host)
      await publish({ report, rows: [...linksLines, ...lines], nameParts, title }, flags)
    },
  )
}

async function linksLineOf(ranks: Ranks, backend: MeasuredBackend): Promise<LinksLine> {
  const times: number[] = []
  let found = { oneShotMaxBytes: 0, directMaxBytes: 0, bytesPerMs: 0 }
  // The first round wakes threads and links.
  for (let round = -1; round < linksRounds; round++) {
    const all = await ranks.ask('links')
    if (round >= 0) times.push(Math.max(...all.map(({ ms }) => ms)))
    const { choice, bytesPerMs } = all[0]
    const { oneShotMaxBytes, directMaxBytes } = choice
    found = { oneShotMaxBytes, directMaxBytes, bytesPerMs: bytesPerMs ?? Number.NaN }
  }
  const { size } = ranks
  return { backend, ranks: size, ms: median(times), msSpread: spread(times), ...found }
}

async function linesOf(
  ranks: Ranks,
  backend: MeasuredBackend,
  { operations, sizes, rounds }: Flags,
): Promise<Line[]> {
  const { size } = ranks
  const lines: Line[] = []
  for (const operation of operations)
    for (const sizeBytes of sizes) {
      const names = algorithms.filter(
        (name) =>
          hasAlgorithm(operation, name) &&
          // One shot is for what is small.
          (name !== 'oneShot' || sizeBytes <= mebi) &&
          (name !== 'hierarchical' || size > 2),
      )
      note(`${backend}, ${size} ranks: ${operation} of ${formatBytes(sizeBytes)}`)
      const samples = names.map((algorithm) => ({
        algorithm,
        ms: [] as number[],
        bareMs: [] as number[],
        rawMs: [] as number[],
      }))
      const repeats = Math.max(1, Math.min(32, Math.floor((4 * mebi) / sizeBytes)))
      // Round -1 wakes threads and links, and is not kept.
      for (let round = -1; round < rounds; round++)
        for (let at = 0; at < samples.length; at++) {
          const sample = samples[(round + 1 + at) % samples.length]
          const { algorithm } = sample
          const { to, ...hops } = hopsOf(algorithm, operation, size, sizeBytes)
          const bare = async () => {
            if (isFloored(backend, algorithm, operation, sizeBytes)) {
              const ms = slowest(await ranks.ask('hops', { ...hops, to, repeats }))
              if (round >= 0) sample.bareMs.push(ms)
            } else if (hasRaw(backend, algorithm, operation, sizeBytes)) {
              const ms = slowest(await ranks.ask('raw', { sizeBytes, to, repeats }))
              if (round >= 0) sample.rawMs.push(ms)
            }
          }
          if (round % 2 !== 0) await bare()
          const task = { operation, algorithm, sizeBytes, rounds: 1, repeats, warmUps: 0 }
          const ms = slowest(await ranks.ask('time', task))
          if (round >= 0) sample.ms.push(ms)
          if (round % 2 === 0) await bare()
        }
      for (const { algorithm, ms, bareMs, rawMs } of samples) {
        const { hops, sizeBytes: hopBytes } = hopsOf(algorithm, operation, size, sizeBytes)
        const floor =
          bareMs.length > 0
            ? { tripsMs: hops * (await oneWayMs(ranks, hopBytes)), hopsMs: median(bareMs) }
            : undefined
        const middle = median(ms)
        const algorithmBandwidth = sizeBytes / middle / 1000
        lines.push({
          backend,
          ranks: size,
          operation,
          sizeBytes,
          algorithm,
          ms: middle,
          msSpread: spread(ms),
          algorithmBandwidth,
          busBandwidth: algorithmBandwidth * busFactor(operation, size),
          floor,
          ofRaw: rawMs.length > 0 ? median(pairRatios(rawMs, ms)) : undefined,
        })
      }
    }
  return lines
}

/** Whether small messages are held against bare ones; the relay has none. */
const isFloored = (
  backend: MeasuredBackend,
  algorithm: Algorithm,
  operation: TimedOperation,
  sizeBytes: number,
): boolean =>
  backend !== 'relay' &&
  operation !== 'broadcast' &&
  algorithm !== 'hierarchical' &&
  sizeBytes <= 64 * kibi

/** Whether large ones are held against bare data channels, which carry what the algorithm sends. */
const hasRaw = (
  backend: MeasuredBackend,
  algorithm: Algorithm,
  operation: TimedOperation,
  sizeBytes: number,
): boolean =>
  backend === 'webrtc' &&
  operation === 'allReduce' &&
  (algorithm === 'ring' || algorithm === 'direct') &&
  sizeBytes >= goal.fromBytes

const slowest = (byRank: readonly number[][]): number => Math.max(...byRank.map(([ms]) => ms))

/** Half of a round trip of the bare link between ranks 0 and 1, with nothing else under way. */
async function oneWayMs(ranks: Ranks, sizeBytes: number): Promise<number> {
  const [times] = await ranks.ask('ping', { sizeBytes, rounds: 250 })
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
  // Its hops differ, so no lower bound follows from them.
  if (algorithm === 'hierarchical') return { hops: 2 * phases, sizeBytes, to: 'all' }
  if (algorithm === 'oneShot') return { hops: 1, sizeBytes, to: 'all' }
  const share = Math.ceil(sizeBytes / ranks)
  if (algorithm === 'direct') return { hops: phases, sizeBytes: share, to: 'all' }
  return { hops: phases * (ranks - 1), sizeBytes: share, to: 'next' }
}

function formatLines(
  lines: readonly Line[],
  linksLines: readonly LinksLine[],
  { browser }: Host,
): string {
  const heading = `${today()}, Chromium ${browser.version()}, ${machineLine('at the end')}; tabs of one machine, local: workers of one tab.`
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
      'of its raw channels',
      'goal',
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
        line.ofRaw?.toFixed(2) ?? '',
        goalOf(line),
      ]
    }),
  )
  const linksTable = markdownTable(
    [
      'backend',
      'ranks',
      'measureLinks, ms',
      'lowest to highest',
      'one shot up to',
      'direct up to',
      'sent in a ring, MB/s',
    ],
    linksLines.map((line) => [
      line.backend,
      line.ranks,
      line.ms.toFixed(0),
      line.msSpread.map((ms) => ms.toFixed(0)).join(' to '),
      formatBytes(line.oneShotMaxBytes),
      formatBytes(line.directMaxBytes),
      (line.bytesPerMs / 1000).toFixed(0),
    ]),
  )
  return `${heading}

Time of \`measureLinks\` on the slowest rank, ${linksRounds} runs, and what the last run found:

${linksTable}

Round trips: number of hops x half an idle round trip of a bare message of the hop's size between two ranks. Bare hops: the same hops with bare messages on all links at once, each rank sending and awaiting what it does in the algorithm, timed in turns with it. Raw channels: the same bytes over the same data channels, to and from the same ranks, with only credits; the median of the ratios of pairs. Hierarchical: as if the ranks were on two machines.

${table}
`
}

function goalOf({ ofRaw, ranks, sizeBytes }: Line): string {
  if (ofRaw === undefined || sizeBytes < goal.fromBytes || !goal.ranks.includes(ranks)) return ''
  return `≥ ${goal.ratio}: ${ofRaw >= goal.ratio ? 'yes' : 'no'}`
}
