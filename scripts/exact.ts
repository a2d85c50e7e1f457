import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Command, InvalidArgumentError } from 'commander'
import { parseOptions } from '../node/train/options.ts'
import { seededRandom } from '../src/util/virtual-env.ts'
import { repository } from '../tests/support/repository.ts'
import { churn, worldsOf } from './exact/churn.ts'
import type { Stop } from './exact/stops.ts'

interface Done {
  readonly seconds: number
  readonly steps: number
  readonly loss: number
  readonly paramHashes: readonly string[]
}

const counts = (text: string): number[] => {
  const tabs = text.split(',').map(Number)
  if (tabs.every((count) => Number.isInteger(count) && count >= 1)) return tabs
  throw new InvalidArgumentError('Expected whole numbers from 1, as in 1,2,3.')
}

const command = new Command('npm run exact --')
  .description(
    "Trains with --exact in each number of tabs, one after the other, and compares the weights' hashes. Exits with 1 where they differ. Takes the flags of npm run train, too: --demo, --model, --optimizer, --steps, --virtual-workers, ...",
  )
  .option('--tabs <list>', 'numbers of tabs', counts, [1, 2, 3])
  .option(
    '--compare',
    'train without --exact too, to see that hashes differ there and what exact costs',
  )
  .option(
    '--churn',
    'train while tabs crash, close and join, with one tab among six for a while, and with a slow tab, against one undisturbed tab',
  )
  .option('--seed-of-churn <number>', 'which tabs are lost, and when', Number, 1)
  .allowUnknownOption()
  .allowExcessArguments()
command.parse()
const { tabs, compare, churn: isChurn, seedOfChurn } = command.opts()
const flags = command.args

/** One run of `npm run train`. */
async function train(count: number, more: readonly string[]): Promise<Done> {
  const own = ['node/train.ts', '--json', '--nproc-per-node', String(count), ...more, ...flags]
  const child = spawn(process.execPath, ['--import', 'tsx', ...own], {
    cwd: repository,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const interrupt = () => child.kill('SIGINT')
  process.once('SIGINT', interrupt)
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  const [code] = await once(child, 'close')
  process.off('SIGINT', interrupt)
  if (code !== 0) process.exit(code ?? 1)
  return JSON.parse(output.trim().split('\n').at(-1)!)
}

/** Hashes of exact runs. */
const seen = new Set<string>()

async function inEachNumber(): Promise<void> {
  const row = (...cells: readonly unknown[]) =>
    console.log(cells.map((cell, i) => String(cell).padEnd([8, 8, 8, 10, 10][i] ?? 0)).join(''))
  row('run', 'tabs', 'steps', 'seconds', 'loss', 'hash')
  for (const count of tabs) {
    for (const kind of compare ? ['exact', 'plain'] : ['exact']) {
      const isExact = kind === 'exact'
      const { steps, seconds, loss, paramHashes } = await train(count, isExact ? ['--exact'] : [])
      row(kind, count, steps, seconds.toFixed(2), loss.toFixed(6), [...new Set(paramHashes)].join())
      if (isExact) for (const hash of paramHashes) seen.add(hash)
    }
  }
}

const inSeconds = (ms: number) => (ms / 1000).toFixed(2)
/** What has not come to what it should. */
const missed: string[] = []

async function withChurn(): Promise<void> {
  const parsed = parseOptions(['--exact', ...flags])
  if (parsed.kind === 'help') return
  const row = (
    name: string,
    hashes: Iterable<string>,
    stops: readonly Stop[],
    shares: readonly number[] = [],
  ) => {
    const told = stops.map(
      ({ isLoss, ms, ordinaryMs }) =>
        `${isLoss ? '' : '+'}${inSeconds(ms)} (${inSeconds(ordinaryMs)})`,
    )
    for (const { isLoss, ms, mostMs } of stops) {
      const what = isLoss
        ? 'the next step after a loss took'
        : 'tabs that came held up the others for'
      if (ms > mostMs)
        missed.push(
          `${name}: ${what} ${inSeconds(ms)} s, at most ${inSeconds(mostMs)} s are allowed.`,
        )
    }
    const cells = [name.padEnd(28), [...hashes].join().padEnd(20), told.join(', ').padEnd(72)]
    console.log(`${cells.join('')}${shares.join(' + ')}`.trimEnd())
    for (const hash of hashes) seen.add(hash)
  }
  console.log(
    `${'run'.padEnd(28)}${'hash'.padEnd(20)}${'stops (ordinary step), s'.padEnd(72)}shares by speed`,
  )
  row('1 tab', new Set((await train(1, ['--exact'])).paramHashes), [])
  const stop = new AbortController()
  process.once('SIGINT', () => stop.abort(new Error('exact: interrupted')))
  const worlds = worldsOf(seededRandom(seedOfChurn))
  await churn(parsed.options, worlds, stop.signal, ({ name, leastStops, mostShare }, room) => {
    const { hashes, stops, shares = [] } = room
    row(name, hashes, stops, shares)
    if (stops.length < leastStops)
      missed.push(
        `${name}: ${stops.length} changes of ranks were seen, at least ${leastStops} are expected.`,
      )
    const part = Math.min(...shares) / Math.max(...shares)
    if (mostShare !== undefined && !(part <= mostShare))
      missed.push(
        `${name}: the slowest tab had ${part.toFixed(2)} of the fastest one's share, at most ${mostShare} is expected.`,
      )
  })
}

await (isChurn ? withChurn() : inEachNumber())
const isSame = seen.size === 1
console.log(
  isSame
    ? 'exact: the same bits in all runs'
    : 'exact: the runs differ. This is a defect, or the adapters differ.',
)
for (const line of missed)
  console.log(`exact: ${line} Other work on this machine may be the reason.`)
process.exit(isSame && missed.length === 0 ? 0 : 1)
