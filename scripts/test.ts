import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { browserVariable, findBrowser } from '../node/chromium.ts'

/**
 * `npm test`: types, lint, layers, then every test, in Node and in a headless browser with WebGPU and WebRTC.
 *
 * Where there is no browser it installs Playwright's. Nothing is skipped for want of a browser, an adapter or a route between tabs:
 * such a machine fails, by name.
 */
const root = resolve(import.meta.dirname, '..')
const bin = (name: string) =>
  join(root, 'node_modules', '.bin', process.platform === 'win32' ? `${name}.cmd` : name)

const isShellNeeded = process.platform === 'win32'
const title = (name: string, args: readonly string[]) => `\n> ${name} ${args.join(' ')}`

function run(name: string, args: readonly string[]): boolean {
  console.log(title(name, args))
  const { status } = spawnSync(bin(name), args, {
    cwd: root,
    stdio: 'inherit',
    shell: isShellNeeded,
  })
  return status === 0
}

/** Runs beside others; what it says comes out in one piece when it has ended. */
async function runQuietly(name: string, args: readonly string[]): Promise<boolean> {
  const child = spawn(bin(name), args, { cwd: root, shell: isShellNeeded })
  const said: Buffer[] = []
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => said.push(chunk))
  const [status] = await once(child, 'close')
  console.log(`${title(name, args)}\n${Buffer.concat(said).toString()}`)
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

function runTests(): { passed: number; failed: number; skipped: number } {
  const folder = join(root, 'test-results')
  mkdirSync(folder, { recursive: true })
  const report = join(folder, 'vitest.json')
  rmSync(report, { force: true })
  const isOk = run('vitest', [
    'run',
    ...process.argv.slice(2),
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
  ])
  if (!existsSync(report)) return { passed: 0, failed: 1, skipped: 0 }
  const {
    numPassedTests: passed,
    numPendingTests: skipped,
    numFailedTests,
    numFailedTestSuites,
  } = JSON.parse(readFileSync(report, 'utf8')) as Record<string, number>
  const failed = numFailedTests || (isOk ? 0 : Math.max(1, numFailedTestSuites))
  return { passed, failed, skipped }
}

if (!process.env.TABRING_DATA) {
  console.log('data: TABRING_DATA is not set, so the tests on real data do not run')
}
const checks = await Promise.all([
  runQuietly('tsc', ['--noEmit']),
  runQuietly('biome', ['check', '.']),
  runQuietly('tsx', ['scripts/check-layers.ts']),
])
const tests = ensureBrowser() ? runTests() : { passed: 0, failed: 1, skipped: 0 }
const failed = tests.failed + checks.filter((isOk) => !isOk).length
const notRun = tests.skipped > 0 ? `, ${tests.skipped} did not run` : ''
console.log(`\n${tests.passed + checks.filter(Boolean).length} passed, ${failed} failed${notRun}`)
process.exit(failed > 0 ? 1 : 0)
