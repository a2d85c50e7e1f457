import { applicable, type VariantTable, variantKey } from './choose.ts'
import type { KernelLimits, Lowering, Op, OpCall, Variant } from './op.ts'

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

/** The most variants that are timed for one call at first, and the most of the winner's family after that. */
export const maxCandidates = 5
export const maxRelatives = 3

/** FNV-1a over the UTF-16 units of a text, as 8 hexadecimal digits. */
export function hashText(text: string): string {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, '0')
}

/** What variants of one kind have in common: the part of the name before its sizes. */
const familyOf = ({ name }: { readonly name: string }): string => name.split('-')[0]

/**
 * The variants worth timing first: the fixed table's choice, one of each other family, then others spread over the op's list.
 *
 * `naive` is timed where that leaves room: a long menu has something better, a short one may not.
 */
export function candidates<A>(op: Op<A>, call: OpCall<A>, limits: KernelLimits): Variant<A>[] {
  const all = applicable(op, call, limits)
  const others = all.filter(({ name }) => name !== op.variants[0].name)
  if (others.length === 0) return all
  const chosen = others.filter(({ name }) => name === op.preferred?.(call, limits))
  const isNew = (variant: Variant<A>) => !chosen.includes(variant)
  for (const variant of others) {
    if (chosen.length < maxCandidates && !chosen.some((one) => familyOf(one) === familyOf(variant)))
      chosen.push(variant)
  }
  // Neighbours in the list resemble each other, so an even spread sees more of it than a prefix.
  const rest = others.filter(isNew)
  const room = Math.min(rest.length, maxCandidates - chosen.length)
  for (let i = 0; i < room; i++) chosen.push(rest[Math.floor((i * rest.length) / room)])
  const naive = all.find(({ name }) => name === op.variants[0].name)
  return naive && chosen.length < maxCandidates ? [...chosen, naive] : chosen
}

/** The variants worth timing next: those of the winner's family that were not, the nearest in the list first. */
export function relatives<A>(
  all: readonly Variant<A>[],
  timed: readonly Variant<A>[],
  winner: Variant<A>,
): Variant<A>[] {
  const distance = (variant: Variant<A>) => Math.abs(all.indexOf(variant) - all.indexOf(winner))
  return all
    .filter((variant) => familyOf(variant) === familyOf(winner) && !timed.includes(variant))
    .sort((a, b) => distance(a) - distance(b))
    .slice(0, maxRelatives)
}

/** The store's key of a call: environment, call, and a hash of every variant's shaders, so that changed kernels are timed again. */
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
 * cost: at most 8 variants a call, each timed once; equal calls once; known calls not at all.
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
    const all = applicable(op, call, limits)
    const lowerings = new Map(all.map((variant) => [variant, variant.lower(call)]))
    const hasWork = [...lowerings.values()].every(({ dispatches }) => dispatches.length > 0)
    if (all.length > 1 && hasWork) {
      const named = [...lowerings].map(([{ name }, lowering]) => [name, lowering] as const)
      const kept = storeKey(environment, key, named)
      const known = await store?.get(kept)
      if (known && all.some(({ name }) => name === known)) table[key] = known
      else {
        const times = new Map<Variant, number>()
        const timeAll = async (variants: readonly Variant[]) => {
          for (const variant of variants)
            times.set(variant, await time(lowerings.get(variant)!, target))
          return [...times].reduce((best, one) => (one[1] < best[1] ? one : best))[0]
        }
        const winner = await timeAll(candidates(op, call, limits))
        table[key] = (await timeAll(relatives(all, [...times.keys()], winner))).name
        await store?.set(kept, table[key])
      }
    }
    onProgress?.(++done, distinct.size)
  }
  return table
}
