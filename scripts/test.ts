import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { browserVariable } from '../node/browser-choice.ts'
import { findBrowser } from '../node/chromium.ts'
import { repository } from '../tests/support/repository.ts'
import {
  printSummary,
  type Summary,
  summaryFile,
  summaryVariable,
  together,
} from './test/reporter.ts'

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

/** Runs a command; its output is shown as it comes, or kept and returned. */
async function run(
  name: string,
  args: readonly string[],
  { env = {}, keepsOutput = false }: { env?: NodeJS.ProcessEnv; keepsOutput?: boolean } = {},
): Promise<{ isOk: boolean; output: string }> {
  if (!keepsOutput) console.log(title(name, args))
  const child = spawn(bin(name), args, {
    cwd: repository,
    stdio: keepsOutput ? ['ignore', 'pipe', 'pipe'] : 'inherit',
    shell: isShellNeeded,
    env: { ...process.env, ...env },
  })
  const output: Buffer[] = []
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => output.push(chunk))
  const [status] = await once(child, 'close')
  const text = keepsOutput ? `${title(name, args)}\n${Buffer.concat(output).toString()}` : ''
  return { isOk: status === 0, output: text }
}

async function ensureBrowser(): Promise<boolean> {
  try {
    console.log(`browser: ${findBrowser()}`)
    return true
  } catch (error) {
    if (process.env[browserVariable]) {
      console.error(String(error))
      return false
    }
    console.log('browser: none found, installing one')
    return (await run('playwright', ['install', 'chromium'])).isOk
  }
}

interface Lane {
  /** Projects of Vitest, one after the other. */
  readonly projects: readonly string[]
  /** Folders of their specs. */
  readonly kinds: readonly string[]
}
/**
 * Lanes run next to each other: the specs of Node have the cores while pages and processes are waited for. Pages have one lane, since the threads of
 * a software adapter spin while they wait: two that are used at once take more than twice as long.
 */
const lanes: readonly Lane[] = [
  { projects: ['unit'], kinds: ['unit', 'values', 'gpu'] },
  { projects: ['gpu', 'e2e'], kinds: ['gpu', 'e2e', 'values'] },
]
/** Holds times against bounds, and makes networks. */
const alone: Lane = { projects: ['timing', 'net'], kinds: ['timing', 'net'] }

async function runSpecs(args: readonly string[], set: 'core' | 'all'): Promise<Summary> {
  if (args.some((arg) => /^--project\b/.test(arg))) return runVitest(args, set)
  const kinds = new Set(
    specs
      .filter((path) => set === 'all' || !path.startsWith('tests/all/'))
      .filter((path) => words.length === 0 || words.some((word) => path.includes(word)))
      .map((path) => /^tests\/(?:all\/)?(\w+)/.exec(path)![1]),
  )
  const isNeeded = (lane: Lane) => lane.kinds.some((kind) => kinds.has(kind))
  const ran: (Summary & { output?: string })[] = []
  for (const side of [lanes.filter(isNeeded), [alone].filter(isNeeded)]) {
    const running = side.map(({ projects }, at) => {
      const own = projects.map((name) => `--project=${name}`)
      return runVitest([...args, ...own, '--passWithNoTests'], set, at)
    })
    ran.push(...(await Promise.all(running)))
  }
  for (const { output } of ran) if (output) console.log(output)
  return together(ran)
}

/** Runs Vitest. Of several at once the first, 0, shows its output as it comes. */
async function runVitest(
  args: readonly string[],
  set: 'core' | 'all',
  lane = 0,
): Promise<Summary & { output?: string }> {
  const path = `${summaryPath}.${lane}`
  rmSync(path, { force: true })
  const reporters = ['--reporter=default', '--reporter=./scripts/test/reporter.ts']
  const { isOk, output } = await run('vitest', ['run', ...reporters, ...args], {
    env: { TABRING_TESTS: set, [summaryVariable]: path },
    keepsOutput: lane > 0,
  })
  if (!existsSync(path)) return { ...failure('vitest ended before its specs did'), output }
  const summary = JSON.parse(readFileSync(path, 'utf8')) as Summary
  rmSync(path)
  if (isOk || summary.failed > 0) return { ...summary, output }
  return { ...summary, ...failure('vitest ended with an error after its specs'), output }
}

const failure = (what: string): Summary => ({ ...together([]), failed: 1, failures: [what] })

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
const checks = await Promise.all(
  commands.map(async ([name, own]) => {
    const { isOk, output } = await run(name, own, { keepsOutput: true })
    console.log(output)
    return isOk
  }),
)
const checkMs = Date.now() - startMs
const hasBrowser = !needsBrowser(args) || (await ensureBrowser())
const ran = hasBrowser ? await runSpecs(args, set) : failure('there is no browser')
printSummary(ran)
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
