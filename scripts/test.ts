import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { browserVariable } from '../node/browser-choice.ts'
import { findBrowser } from '../node/chromium.ts'
import { repository } from '../tests/support/repository.ts'
import { type Summary, summaryFile } from './test/reporter.ts'

/**
 * `npm test`: types, lint, layers, then tests/unit, tests/gpu and tests/e2e: in Node, and in a headless browser with WebGPU and WebRTC.
 * `npm run test:all` adds tests/all. `npm test -- word` runs only the specs whose path contains the word, without the checks: those of
 * `npm test` if one matches, else those of tests/all; `--all` takes both. Vitest's own options work too (`-t name`, `--project gpu`).
 *
 * Where there is no browser it installs Playwright's. Nothing is skipped for lack of a browser, an adapter or a route between tabs:
 * such a machine fails with an error that says what is missing.
 */
/** Paths of all specs, from the root. */
const specs = readdirSync(join(repository, 'tests'), { recursive: true, encoding: 'utf8' })
  .map((name) => `tests/${name.replaceAll('\\', '/')}`)
  .filter((name) => /\.spec\.tsx?$/.test(name))
const summaryPath = join(repository, summaryFile)
const bin = (name: string) =>
  join(repository, 'node_modules', '.bin', process.platform === 'win32' ? `${name}.cmd` : name)

const isShellNeeded = process.platform === 'win32'
const title = (name: string, args: readonly string[]) => `\n> ${name} ${args.join(' ')}`

function run(name: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): boolean {
  console.log(title(name, args))
  const { status } = spawnSync(bin(name), args, {
    cwd: repository,
    stdio: 'inherit',
    shell: isShellNeeded,
    env: { ...process.env, ...env },
  })
  return status === 0
}

/** Runs next to other commands; prints its output in one piece when it has ended. */
async function runQuietly(name: string, args: readonly string[]): Promise<boolean> {
  const child = spawn(bin(name), args, { cwd: repository, shell: isShellNeeded })
  const output: Buffer[] = []
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => output.push(chunk))
  const [status] = await once(child, 'close')
  console.log(`${title(name, args)}\n${Buffer.concat(output).toString()}`)
  return status === 0
}

function ensureBrowser(): boolean {
  try {
    console.log(`browser: ${findBrowser()}`)
    return true
  } catch (error) {
    if (process.env[browserVariable]) {
      console.error(String(error))
      return false
    }
    console.log('browser: none found, installing one')
    return run('playwright', ['install', 'chromium'])
  }
}

function runSpecs(args: readonly string[], set: 'core' | 'all'): Summary {
  rmSync(summaryPath, { force: true })
  const reporters = ['--reporter=default', '--reporter=./scripts/test/reporter.ts']
  const isOk = run('vitest', ['run', ...reporters, ...args], { TABRING_TESTS: set })
  const summary = existsSync(summaryPath)
    ? (JSON.parse(readFileSync(summaryPath, 'utf8')) as Summary)
    : failure('vitest ended before its specs did')
  if (isOk || summary.failed > 0) return summary
  return { ...summary, ...failure('vitest ended with an error after its specs') }
}

const failure = (what: string) => ({ passed: 0, failed: 1, skipped: 0, failures: [what] })

/** How many specs of tests/all, or of the other folders, have a path that contains the word. */
function matching(word: string, isInAll: boolean): number {
  const isOfSet = (path: string) => path.startsWith('tests/all/') === isInAll
  return specs.filter((path) => isOfSet(path) && path.includes(word)).length
}

/** Specs need no browser where all paths that name them lie below a folder `unit`. */
function needsBrowser(words: readonly string[]): boolean {
  const paths = words.filter((word) => word.includes('/'))
  return paths.length === 0 || paths.some((path) => !/(?:^|\/)unit\//.test(path))
}

const args = process.argv.slice(2).filter((arg) => arg !== '--all')
const isWhole = args.length === 0
const words = args.filter(
  (arg, i) => !arg.startsWith('-') && !/^(?:-t|--[\w-]+)$/.test(args[i - 1] ?? ''),
)
const unknown = words.find((word) => matching(word, false) + matching(word, true) === 0)
if (unknown !== undefined) {
  console.error(`test: no spec's path contains "${unknown}". Name a folder, such as unit/graph.`)
  process.exit(1)
}
const isAll = process.argv.includes('--all') || words.some((word) => matching(word, false) === 0)
const set = isAll ? 'all' : 'core'
const further = words.reduce((sum, word) => sum + matching(word, true), 0)
if (!isAll && further > 0)
  console.log(`${further} more in tests/all: npm test -- --all ${args.join(' ')}`)
if (!process.env.TABRING_DATA)
  console.log('data: TABRING_DATA is not set, so the tests on real data do not run')

const startMs = Date.now()
const commands: [name: string, args: string[]][] = isWhole
  ? [
      ['tsc', ['--noEmit']],
      ['biome', ['check', '.']],
      ['tsx', ['scripts/check-layers.ts']],
      ['tsx', ['scripts/check-counts.ts']],
    ]
  : []
const checks = await Promise.all(commands.map(([name, own]) => runQuietly(name, own)))
const checkMs = Date.now() - startMs
const hasBrowser = !needsBrowser(args) || ensureBrowser()
const ran = hasBrowser ? runSpecs(args, set) : failure('there is no browser')
const failedChecks = commands.filter((_, i) => !checks[i]).map(([name]) => `check: ${name}`)
mkdirSync(dirname(summaryPath), { recursive: true })
writeFileSync(summaryPath, JSON.stringify({ ...ran, failures: [...failedChecks, ...ran.failures] }))
const seconds = (ms: number) => `${(ms / 1000).toFixed(0)} s`
const ofChecks = isWhole ? ` (types, lint, layers and counts: ${seconds(checkMs)})` : ''
console.log(`\nTotal: ${seconds(Date.now() - startMs)}${ofChecks}`)
const failed = ran.failed + failedChecks.length
const notRun = ran.skipped > 0 ? `, ${ran.skipped} did not run` : ''
console.log(`\n${ran.passed + checks.filter(Boolean).length} passed, ${failed} failed${notRun}`)
process.exit(failed > 0 ? 1 : 0)
