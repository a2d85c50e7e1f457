import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { repository } from '../tests/support/repository.ts'
import { type Summary, summaryFile } from './test/reporter.ts'

const usage = `Usage: npm run test:repeat -- [--times N] [--load] [spec ...] [-t name]

Runs the specs N times (10 by default) and reports how often each test failed. Without a spec it runs all of "npm test";\n--all adds tests/all.

  --times N   number of runs
  --load      keep one core busy with another process meanwhile
  -t name     only the tests whose name matches; other options of Vitest work too

The output of each failed run is kept in test-results/repeat-<n>.log.`

const given = process.argv
  .slice(2)
  .flatMap((arg) => (arg.startsWith('--times=') ? arg.split('=') : [arg]))
if (given.includes('--help') || given.includes('-h')) {
  console.log(usage)
  process.exit(0)
}
const at = given.indexOf('--times')
const times = at < 0 ? 10 : Number(given[at + 1])
if (!Number.isInteger(times) || times < 1) {
  console.error(
    `test:repeat: --times must be a whole number from 1, got ${given[at + 1]}.\n\n${usage}`,
  )
  process.exit(2)
}
const isLoaded = given.includes('--load')
/** For scripts/test.ts: specs, and options of Vitest. */
const passedOn = given.filter(
  (arg, i) => arg !== '--load' && (at < 0 || (i !== at && i !== at + 1)),
)

const results = join(repository, 'test-results')
mkdirSync(results, { recursive: true })

/** Failed runs by test: the command that runs the test alone, and a count. */
const failures = new Map<string, number>()
let failedRuns = 0
const load: ChildProcess | undefined = isLoaded
  ? spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' })
  : undefined
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
process.once('exit', () => load?.kill())
try {
  for (let run = 1; run <= times; run++) {
    const startMs = Date.now()
    const failed = await runOnce(run)
    const seconds = ((Date.now() - startMs) / 1000).toFixed(1)
    console.log(
      `run ${run} of ${times}: ${failed.length === 0 ? 'passed' : 'failed'}, ${seconds} s`,
    )
    for (const name of failed) failures.set(name, (failures.get(name) ?? 0) + 1)
    if (failed.length > 0) failedRuns += 1
  }
} finally {
  load?.kill()
}
console.log(
  `\n${failedRuns} of ${times} runs failed${isLoaded ? ', with one core under load' : ''}`,
)
for (const [name, count] of [...failures].sort((a, b) => b[1] - a[1]))
  console.log(`${count} of ${times}: ${name}`)
process.exit(failedRuns > 0 ? 1 : 0)

/** Returns what failed; the output of a failed run goes to a file. */
async function runOnce(run: number): Promise<readonly string[]> {
  rmSync(join(repository, summaryFile), { force: true })
  const args = ['--import', 'tsx', join(repository, 'scripts/test.ts'), ...passedOn]
  const child = spawn(process.execPath, args, {
    cwd: repository,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output: Buffer[] = []
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => output.push(chunk))
  const [status] = await once(child, 'close')
  if (status === 0) return []
  const log = join(results, `repeat-${run}.log`)
  writeFileSync(log, Buffer.concat(output))
  console.log(`  output: ${log}`)
  const failed = failuresOf() ?? []
  return failed.length > 0 ? failed : [`the run ended with exit code ${status}`]
}

function failuresOf(): readonly string[] | undefined {
  try {
    const { failures } = JSON.parse(readFileSync(join(repository, summaryFile), 'utf8')) as Summary
    return failures
  } catch {
    return undefined
  }
}
