import type { Trace } from '../simulation/trace.ts'

/** What a seed came to. */
export interface FuzzOutcome {
  /** What broke a promise; empty where all held. */
  readonly violations: readonly string[]
  /** How much was fed in, and how it was answered, by kind. */
  readonly counts: Readonly<Record<string, number>>
}

/** Something that takes bytes from strangers, and how it is attacked. */
export interface FuzzTarget {
  readonly name: string
  /** One line. */
  readonly about: string
  /** Attacks it as the seed says. Never rejects for what it finds. `trace` takes what was fed in. */
  run(seed: number, trace?: Trace): Promise<FuzzOutcome>
}

/** What a seed has counted and found so far. */
export class Findings implements FuzzOutcome {
  readonly violations: string[] = []
  readonly counts: Record<string, number> = {}
  readonly #trace: Trace | undefined

  constructor(trace?: Trace) {
    this.#trace = trace
  }

  count(kind: string, by = 1): void {
    this.counts[kind] = (this.counts[kind] ?? 0) + by
  }

  note(text: string, atMs = 0): void {
    this.#trace?.note(atMs, text)
  }

  violate(text: string, atMs = 0): void {
    this.violations.push(text)
    this.note(`VIOLATION ${text}`, atMs)
  }
}

/** What was thrown, and where. */
export const whereOf = (thrown: unknown): string =>
  thrown instanceof Error && thrown.stack
    ? thrown.stack.split('\n').slice(0, 4).join(' ').slice(0, 600)
    : String(thrown)
