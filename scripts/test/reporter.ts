import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Reporter, TestCase, TestModule, TestRunEndReason } from 'vitest/node'

const slowestShown = 30

/** Counts of tests, and the command that runs each failed one alone. */
export interface Summary {
  passed: number
  failed: number
  skipped: number
  failures: string[]
}

/** Where the reporter writes its summary, as JSON. */
export const summaryFile = 'test-results/summary.json'

/** Prints, after all specs: wall time by kind, the 30 slowest specs, and for each failed test the command that runs it alone. */
export default class SummaryReporter implements Reporter {
  /** By group of specs that run at once. */
  readonly #spans = new Map<string, { startMs: number; endMs: number }>()

  onTestModuleStart(module: TestModule): void {
    const group = kindOf(module)
    if (!this.#spans.has(group)) this.#spans.set(group, { startMs: Date.now(), endMs: Date.now() })
  }

  onTestModuleEnd(module: TestModule): void {
    const span = this.#spans.get(kindOf(module))
    if (span) span.endMs = Date.now()
  }

  onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly { readonly message: string }[],
    reason: TestRunEndReason,
  ): void {
    const summary: Summary = { passed: 0, failed: 0, skipped: 0, failures: [] }
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state === 'failed') summary.failures.push(commandFor(test))
        summary[state === 'passed' || state === 'failed' ? state : 'skipped']++
      }
      // A spec that cannot be loaded, or whose setup or clean-up throws, has no failed test to show for it.
      if (module.errors().length > 0) {
        summary.failures.push(`npm test -- ${module.relativeModuleId}`)
        summary.failed++
      }
    }
    printTimes(this.#spans)
    printSlowest(modules)
    if (summary.failures.length > 0)
      console.log(`\nTo run each failure alone:\n  ${summary.failures.join('\n  ')}`)
    for (const { message } of unhandledErrors)
      summary.failures.push(`an error outside of tests: ${message}`)
    summary.failed += unhandledErrors.length
    if (reason !== 'passed' && summary.failed === 0) {
      summary.failures.push(`the run was ${reason}`)
      summary.failed = 1
    }
    mkdirSync(dirname(summaryFile), { recursive: true })
    writeFileSync(summaryFile, JSON.stringify(summary))
  }
}

/** `unit`, `gpu`, `e2e`, …; specs of a kind run together, those of tests and tests/all. */
const kindOf = ({ project }: TestModule): string => project.name.split(' ')[0]!

function commandFor(test: TestCase): string {
  const name = test.fullName.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll(' > ', ' ')
  return `npm test -- ${test.module.relativeModuleId} -t '${name.replaceAll("'", "'\\''")}'`
}

function printTimes(spans: ReadonlyMap<string, { startMs: number; endMs: number }>): void {
  console.log('\nTime by kind of spec:')
  for (const [group, { startMs, endMs }] of spans) {
    console.log(`${seconds(endMs - startMs)}  ${group}`)
  }
}

function printSlowest(modules: readonly TestModule[]): void {
  const timed = modules
    .map((module) => ({ path: module.relativeModuleId, ms: totalMs(module) }))
    .sort((a, b) => b.ms - a.ms)
  console.log(`\nThe slowest ${Math.min(slowestShown, timed.length)} specs of ${timed.length}:`)
  for (const { path, ms } of timed.slice(0, slowestShown)) console.log(`${seconds(ms)}  ${path}`)
}

function totalMs(module: TestModule): number {
  const { collectDuration, setupDuration, duration } = module.diagnostic()
  return collectDuration + setupDuration + duration
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1).padStart(7)} s`
