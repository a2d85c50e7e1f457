import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { parseOptions } from '../node/train/options.ts'
import { seededRandom } from '../src/util/virtual-env.ts'
import { repository } from '../tests/support/repository.ts'
import { churn, worldsOf } from './exact/churn.ts'
import { parseExact } from './exact/options.ts'
import type { Stop } from './exact/stops.ts'
import { differencesOf, type RowEnd, tableOf } from './exact/table.ts'

interface Done {
  readonly seconds: number
  readonly steps: number
  readonly loss: number
  readonly paramHashes: readonly string[]
}

const { tabs, rows, compare, isChurn, seedOfChurn } = parseExact(process.argv.slice(2))

/** One run of `npm run train`. */
async function train(count: number, flags: readonly string[]): Promise<Done> {
  const own = ['node/train.ts', '--json', '--nproc-per-node', String(count), ...flags]
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

/** What is wrong. */
const wrong: string[] = []

async function inEachNumber(): Promise<void> {
  const print = (...cells: readonly unknown[]) =>
    console.log(cells.map((cell, i) => String(cell).padEnd(widths[i] ?? 0)).join(''))
  const kinds = compare ? ['exact', 'plain'] : ['exact']
  const runs = rows.length * tabs.length * kinds.length
  const widths = [2 * String(runs).length + 3, 8, 8, 11, 8, 8, 10, 10]
  print('', 'run', 'model', 'optimizer', 'tabs', 'steps', 'seconds', 'loss', 'hash')
  let run = 0
  const ends: RowEnd[] = []
  for (const { model, optimizer, flags } of rows) {
    const own: { tabs: number; hashes: readonly string[] }[] = []
    const beganMs = performance.now()
    for (const count of tabs)
      for (const kind of kinds) {
        const isExact = kind === 'exact'
        const done = await train(count, isExact ? ['--exact', ...flags] : flags)
        const { steps, seconds, loss, paramHashes } = done
        const numbers = [count, steps, seconds.toFixed(2), loss.toFixed(6)]
        const hashes = [...new Set(paramHashes)].join()
        print(`${++run}/${runs}`, kind, model, optimizer, ...numbers, hashes)
        if (isExact) own.push({ tabs: count, hashes: paramHashes })
      }
    ends.push({ model, optimizer, runs: own, seconds: (performance.now() - beganMs) / 1000 })
  }
  console.log(`\n${tableOf(ends)}\n`)
  wrong.push(...differencesOf(ends))
}

const inSeconds = (ms: number) => (ms / 1000).toFixed(2)

async function withChurn(): Promise<void> {
  const [{ flags }] = rows
  /** Of exact runs. */
  const seen = new Set<string>()
  const missed = (line: string) =>
    wrong.push(`${line} Other work on this machine may be the reason.`)
  const parsed = parseOptions(['--exact', ...flags])
  if (parsed.kind === 'help') return
  const row = (
    name: string,
    hashes: Iterable<string>,
    stops: readonly Stop[],
    shares: readonly number[] = [],
  ) => {
    const lines = stops.map(
      ({ isLoss, ms, ordinaryMs }) =>
        `${isLoss ? '' : '+'}${inSeconds(ms)} (${inSeconds(ordinaryMs)})`,
    )
    for (const { isLoss, ms, maxMs } of stops) {
      const what = isLoss
        ? 'the next step after a loss took'
        : 'tabs that came held up the others for'
      if (ms > maxMs)
        missed(`${name}: ${what} ${inSeconds(ms)} s, at most ${inSeconds(maxMs)} s are allowed.`)
    }
    const cells = [name.padEnd(28), [...hashes].join().padEnd(20), lines.join(', ').padEnd(72)]
    console.log(`${cells.join('')}${shares.join(' + ')}`.trimEnd())
    for (const hash of hashes) seen.add(hash)
  }
  console.log(
    `${'run'.padEnd(28)}${'hash'.padEnd(20)}${'stops (ordinary step), s'.padEnd(72)}shares by speed`,
  )
  row('1 tab', new Set((await train(1, ['--exact', ...flags])).paramHashes), [])
  const stop = new AbortController()
  process.once('SIGINT', () => stop.abort(new Error('exact: interrupted')))
  const worlds = worldsOf(seededRandom(seedOfChurn))
  await churn(parsed.options, worlds, stop.signal, ({ name, minStops, maxShare }, room) => {
    const { hashes, stops, shares = [] } = room
    row(name, hashes, stops, shares)
    if (stops.length < minStops)
      missed(
        `${name}: ${stops.length} changes of ranks were seen, at least ${minStops} are expected.`,
      )
    const part = Math.min(...shares) / Math.max(...shares)
    if (maxShare !== undefined && !(part <= maxShare))
      missed(
        `${name}: the slowest tab had ${part.toFixed(2)} of the fastest one's share, at most ${maxShare} is expected.`,
      )
  })
  if (seen.size > 1) wrong.unshift('the runs differ. This is a defect, or the adapters differ.')
}

await (isChurn ? withChurn() : inEachNumber())
if (wrong.length === 0) console.log('exact: the same bits in all runs')
for (const line of wrong) console.log(`exact: ${line}`)
process.exit(wrong.length === 0 ? 0 : 1)
