import { applicable, lowerCall, type VariantTable, variantKey } from './choose.ts'
import type { KernelLimits, Lowering, Op, OpCall } from './op.ts'

// The autotuner: times the variants of each call on the adapter at hand and keeps the winners. It knows no GPU: timing
// and storage are passed in. Which variants win fixes the order of sums, so a table is part of a run's record.

/** One call to tune. */
export interface TuneTarget {
  readonly op: Op
  readonly call: OpCall
}

/** Milliseconds of one execution of a lowering, measured over at least 2 ms. */
export type TimeLowering = (lowering: Lowering, target: TuneTarget) => Promise<number>

/** Where winners are kept between runs (IndexedDB on the page, a map in tests). */
export interface TuneStore {
  get(key: string): Promise<string | undefined>
  set(key: string, variant: string): Promise<void>
}

export interface TuneOptions {
  readonly targets: readonly TuneTarget[]
  readonly limits: KernelLimits
  readonly time: TimeLowering
  /** Winners of earlier runs; nothing is kept without. */
  readonly store?: TuneStore
  /** The adapter and the browser, as text: winners hold for these alone. */
  readonly environment?: string
  readonly onProgress?: (done: number, of: number) => void
}

/** The most variants that are timed for one call. */
export const maxCandidates = 5

/** FNV-1a over the UTF-16 units of a text, as 8 hexadecimal digits. */
export function hashText(text: string): string {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, '0')
}

/**
 * The variants worth timing: the fixed table's choice, then the others in turn, spread over the op's list.
 *
 * `naive` is timed where that leaves room: a long menu has something better, a short one may not.
 */
export function candidates<A>(op: Op<A>, call: OpCall<A>, limits: KernelLimits) {
  const all = applicable(op, call, limits)
  const others = all.filter(({ name }) => name !== op.variants[0].name)
  if (others.length === 0) return all
  const first = others.find(({ name }) => name === op.preferred?.(call, limits))
  const rest = others.filter((variant) => variant !== first)
  const room = maxCandidates - (first ? 1 : 0)
  // Neighbours in the list resemble each other, so an even spread sees more of it than a prefix.
  const spread =
    rest.length <= room
      ? rest
      : Array.from({ length: room }, (_, i) => rest[Math.floor((i * rest.length) / room)])
  const chosen = first ? [first, ...spread] : spread
  const naive = all.find(({ name }) => name === op.variants[0].name)
  return naive && chosen.length < maxCandidates ? [...chosen, naive] : chosen
}

/** The store's key of a call: environment, call, and a hash of every candidate's shaders, so that new kernels are timed anew. */
export function storeKey(
  environment: string,
  key: string,
  lowerings: readonly (readonly [name: string, Lowering])[],
): string {
  const texts = lowerings.map(
    ([name, { dispatches }]) => `${name}\n${dispatches.map(({ wgsl }) => wgsl).join('\n')}`,
  )
  return `${environment} | ${key} | ${hashText(texts.join('\n'))}`
}

/**
 * Returns the fastest variant of each call, by `variantKey`.
 *
 * cost: at most 5 variants a call, each timed once; equal calls once; known calls not at all.
 * Calls with a single choice have no entry: every run makes that choice anyway.
 */
export async function tune(options: TuneOptions): Promise<VariantTable> {
  const { targets, limits, time, store, environment = '', onProgress } = options
  const table: Record<string, string> = {}
  const distinct = new Map(
    targets.map((target) => [variantKey(target.op, target.call), target] as const),
  )
  let done = 0
  for (const [key, target] of distinct) {
    const { op, call } = target
    const lowerings = candidates(op, call, limits).map(
      (variant) => [variant.name, lowerCall(variant, call, limits)] as const,
    )
    const hasWork = lowerings.every(([, { dispatches }]) => dispatches.length > 0)
    if (lowerings.length > 1 && hasWork) {
      const kept = storeKey(environment, key, lowerings)
      const known = await store?.get(kept)
      if (known && lowerings.some(([name]) => name === known)) table[key] = known
      else {
        let best = Number.POSITIVE_INFINITY
        for (const [name, lowering] of lowerings) {
          const ms = await time(lowering, target)
          if (ms < best) {
            best = ms
            table[key] = name
          }
        }
        if (key in table) await store?.set(kept, table[key])
      }
    }
    onProgress?.(++done, distinct.size)
  }
  return table
}
