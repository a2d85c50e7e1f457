import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { repository } from '../tests/support/repository.ts'

const usage = `Usage: npm run exact -- [--tabs 1,2,3] [--compare] [flags of npm run train]

Trains with --exact in each number of tabs, one after the other, and compares the weights' hashes. Exits with 1 where they differ.

  --tabs LIST   numbers of tabs; default: 1,2,3
  --compare     train without --exact too, to see that hashes differ there and what exact costs
  others        as for npm run train: --demo, --model, --optimizer, --steps, --virtual-workers, ...`

interface Done {
  readonly seconds: number
  readonly steps: number
  readonly loss: number
  readonly paramHashes: readonly string[]
}

const given = process.argv.slice(2)
const take = (name: string): string | undefined => {
  const at = given.indexOf(name)
  return at < 0 ? undefined : given.splice(at, 2)[1]
}
if (given.includes('--help') || given.includes('-h')) {
  console.log(usage)
  process.exit(0)
}
const tabs = (take('--tabs') ?? '1,2,3').split(',').map(Number)
const isCompared = given.includes('--compare')
const flags = given.filter((flag) => flag !== '--compare')
if (!tabs.every((count) => Number.isInteger(count) && count >= 1)) {
  console.error(`exact: --tabs must be whole numbers from 1, as in 1,2,3.\n\n${usage}`)
  process.exit(2)
}

/** One run of `npm run train`. */
async function train(count: number, more: readonly string[]): Promise<Done> {
  const command = ['node/train.ts', '--json', '--nproc-per-node', String(count), ...more, ...flags]
  const child = spawn(process.execPath, ['--import', 'tsx', ...command], {
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

const row = (...cells: readonly unknown[]) =>
  console.log(cells.map((cell, i) => String(cell).padEnd([8, 8, 8, 10, 10][i] ?? 0)).join(''))

const hashes = new Map<string, Set<string>>()
row('run', 'tabs', 'steps', 'seconds', 'loss', 'hash')
for (const count of tabs) {
  for (const kind of isCompared ? ['exact', 'plain'] : ['exact']) {
    const { steps, seconds, loss, paramHashes } = await train(
      count,
      kind === 'exact' ? ['--exact'] : [],
    )
    row(kind, count, steps, seconds.toFixed(2), loss.toFixed(6), [...new Set(paramHashes)].join())
    const seen = hashes.get(kind) ?? new Set()
    hashes.set(kind, new Set([...seen, ...paramHashes]))
  }
}
const isSame = hashes.get('exact')!.size === 1
console.log(
  isSame
    ? 'exact: the same bits in all runs'
    : 'exact: the runs differ. This is a defect, or the adapters differ.',
)
process.exit(isSame ? 0 : 1)
