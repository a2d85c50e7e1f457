import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Reporter, TestCase, TestModule, TestRunEndReason } from 'vitest/node'

const slowestShown = 30

export interface Summary {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  /** The command that runs each failed test alone, or what else failed. */
  readonly failures: readonly string[]
  /** When each kind of specs began and ended. */
  readonly spans: readonly {
    readonly kind: string
    readonly startMs: number
    readonly endMs: number
  }[]
  readonly specs: readonly { readonly path: string; readonly ms: number }[]
}

/** Where `npm test` writes its summary, as JSON. */
export const summaryFile = 'test-results/summary.json'
/** Names the file to which the reporter writes that of one Vitest. */
export const summaryVariable = 'TABRING_SUMMARY'

/** Summary of what several have run. */
export const together = (all: readonly Summary[]): Summary => ({
  passed: all.reduce((sum, { passed }) => sum + passed, 0),
  failed: all.reduce((sum, { failed }) => sum + failed, 0),
  skipped: all.reduce((sum, { skipped }) => sum + skipped, 0),
  failures: all.flatMap(({ failures }) => failures),
  spans: all.flatMap(({ spans }) => spans),
  specs: all.flatMap(({ specs }) => specs),
})

/** Writes, after all specs, counts, times, and for each failed test the command that runs it alone. */
export default class SummaryReporter implements Reporter {
  /** By kind of specs. */
  readonly #spans = new Map<string, { kind: string; startMs: number; endMs: number }>()

  onTestModuleStart(module: TestModule): void {
    const kind = kindOf(module)
    const nowMs = Date.now()
    if (!this.#spans.has(kind)) this.#spans.set(kind, { kind, startMs: nowMs, endMs: nowMs })
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
    const counts = { passed: 0, failed: 0, skipped: 0 }
    const failures: string[] = []
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state === 'failed') failures.push(commandFor(test))
        counts[state === 'passed' || state === 'failed' ? state : 'skipped']++
      }
      // A spec that cannot be loaded, or whose setup or clean-up throws, has no failed test to show for it.
      if (module.errors().length > 0) {
        failures.push(`npm test -- ${module.relativeModuleId}`)
        counts.failed++
      }
    }
    for (const { message } of unhandledErrors)
      failures.push(`an error outside of tests: ${message}`)
    counts.failed += unhandledErrors.length
    if (reason !== 'passed' && counts.failed === 0) {
      failures.push(`the run was ${reason}`)
      counts.failed = 1
    }
    const specs = modules.map((module) => ({ path: module.relativeModuleId, ms: totalMs(module) }))
    const summary: Summary = { ...counts, failures, spans: [...this.#spans.values()], specs }
    const file = process.env[summaryVariable] ?? summaryFile
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, JSON.stringify(summary))
  }
}

/** `unit`, `gpu`, `e2e`, …; specs of a kind run together, those of tests and tests/all. */
const kindOf = ({ project }: TestModule): string => project.name.split(' ')[0]!

function commandFor(test: TestCase): string {
  const name = test.fullName.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll(' > ', ' ')
  return `npm test -- ${test.module.relativeModuleId} -t '${name.replaceAll("'", "'\\''")}'`
}

/** Prints wall time by kind, the 30 slowest specs, and what failed. */
export function printSummary({ failures, spans, specs }: Summary): void {
  console.log('\nTime by kind of spec:')
  for (const { kind, startMs, endMs } of spans) console.log(`${seconds(endMs - startMs)}  ${kind}`)
  const slowest = [...specs].sort((a, b) => b.ms - a.ms).slice(0, slowestShown)
  console.log(`\nThe slowest ${slowest.length} specs of ${specs.length}:`)
  for (const { path, ms } of slowest) console.log(`${seconds(ms)}  ${path}`)
  if (failures.length > 0) console.log(`\nTo run each failure alone:\n  ${failures.join('\n  ')}`)
}

function totalMs(module: TestModule): number {
  const { collectDuration, setupDuration, duration } = module.diagnostic()
  return collectDuration + setupDuration + duration
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1).padStart(7)} s`
