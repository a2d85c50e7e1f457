import * as v from 'valibot'
import type { BitProof } from '../../ddp/exact/exact-step.ts'
import { maxUs } from '../../ddp/exact/tail.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { plainName } from '../../peer/room/names.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import type { RankName, RunEvent } from '../watch/run-events.ts'
import {
  maxUnlikeChars,
  nameSchema,
  proofSchema,
  type RunLog,
  type RunLogFile,
  unlikeSchema,
} from '../watch/run-log.ts'
import type { RankSetup } from './rank-setup.ts'

/** Logs may hold more than these schemas read; ranks say no more. */
const strictProof = v.strictObject(proofSchema.entries)
const isPlain = v.check((name: string) => plainName(name) === name)

/** By what an exact run knows the bits of a rank. */
export const bitsSchema = v.strictObject({
  who: v.strictObject({ id: nameSchema, name: v.pipe(nameSchema, isPlain) }),
  proof: strictProof,
  /** True if its device computes the same bits on every machine. */
  isPortable: v.optional(v.boolean()),
  /** The proof that the run began with, where the rank knows it. */
  known: v.optional(strictProof),
  /** The lasting difference of other ranks' bits that it knows of. */
  lasting: v.optional(v.strictObject(unlikeSchema.entries)),
  /** How long it takes for a virtual worker. */
  took: v.optional(
    v.strictObject({
      us: v.pipe(v.number(), v.safeInteger(), v.minValue(1), v.maxValue(maxUs)),
      isOfProof: v.boolean(),
    }),
  ),
})
export type Bits = v.InferOutput<typeof bitsSchema>

/** Result that a device has computed, by which the others know it. */
export interface Proved {
  readonly runtime: AnyRuntime
  readonly proof: BitProof
}

/** Checks whether the ranks of an exact run compute the bits that it began with. */
export class RunBits {
  readonly #log: RunLog
  readonly #onEvent: (event: RunEvent) => void
  readonly #self: RankName | undefined
  #proved: Proved | undefined
  /** Reports of all ranks of the group. */
  #bits: readonly Bits[] = []
  #devices: readonly string[] = []
  #unlike: Unlike | undefined
  #before: Bits['lasting']
  /** This rank has reported what lasts. */
  #knows = false
  /** The newest that this rank has reported. */
  #reported: string | undefined

  /** `self`: this rank, where it has a name. `proved`: where `warmUp` has computed it. */
  constructor(log: RunLog, onEvent: (event: RunEvent) => void, self?: RankName, proved?: Proved) {
    this.#self = self
    this.#log = log
    this.#onEvent = onEvent
    this.#proved = proved
  }

  /**
   * Returns this rank's report to the others; undefined without `exact`. The proof is computed once for a device. `earlier`: the log that came with the
   * run's state.
   */
  async own(
    { runtime, prove, took }: Pick<RankSetup, 'runtime' | 'prove' | 'took'>,
    earlier: RunLogFile | undefined,
    rank: number,
  ): Promise<Bits | undefined> {
    if (!prove) return undefined
    if (this.#proved?.runtime !== runtime) this.#proved = { runtime, proof: await prove() }
    const { proof } = this.#proved
    const known = this.#log.proof ?? earlier?.proof
    this.#knows = this.#log.unlike.some(isLasting)
    const lasting = [...this.#log.unlike, ...(earlier?.unlike ?? [])].find(isLasting)
    const { id, name } = this.#self ?? { id: String(rank), name: `rank ${rank}` }
    const who = { id, name: plainName(name) || `rank ${rank}` }
    const own = took?.()
    return {
      who,
      proof,
      isPortable: 'gpu' in runtime && runtime.gpu.id.type === 'cpu',
      ...(known && { known }),
      ...(lasting && { lasting }),
      ...(own && { took: own }),
    }
  }

  /** Takes the reports of all ranks; none without `exact`. */
  take(bits: readonly Bits[], adapters: readonly string[], devices: readonly string[]): void {
    if (bits.length === 0) return
    const { known, unlike } = unlikeBits(bits, adapters)
    this.#bits = bits
    this.#devices = devices
    this.#log.proof = known
    this.#unlike = unlike
    this.#before = bits.find(({ lasting }) => lasting)?.lasting
  }

  /** True if ranks can compute each other's gradients to the bit. */
  get areChecked(): boolean {
    const bits = this.#bits
    return bits.length > 1 && !this.#unlike && bits.every(({ isPortable }) => isPortable)
  }

  /** Returns in words how the run of a log began differently; undefined where that is not known. */
  differenceFrom(log: RunLogFile | undefined): string | undefined {
    const own = this.#log.proof
    const part = own && log?.proof && differingPart(own, log.proof)
    return part && parts[part]
  }

  /**
   * Tells who trains from `step` on, and what is news to this rank: what ranks of earlier groups have found, and who is unlike the run.
   * `samples`: of a full batch, by rank.
   */
  report(step: number, samples: readonly number[], rank: number): void {
    const { proof } = this.#log
    if (proof) {
      const members = this.#bits.map(({ who, proof: own }, at) => ({
        ...who,
        samples: samples[at],
        device: this.#devices[at],
        ...(differingPart(own, proof) && { proof: own }),
      }))
      this.#onEvent({ event: 'group', step, members, proof, rank })
    }
    const report = (found: Omit<Extract<RunEvent, { event: 'unlike' }>, 'event' | 'rank'>) => {
      this.#reported = found.text
      this.#onEvent({ event: 'unlike', ...found, rank })
    }
    if (this.#before && !this.#knows) report({ ...this.#before, ranks: [] })
    const unlike = this.#unlike
    if (unlike && unlike.text !== this.#reported) report({ step, ...unlike, isLasting: true })
  }
}

const isLasting = (found: RunLogFile['unlike'][number]): boolean => found.isLasting

interface Unlike {
  readonly ranks: readonly number[]
  readonly text: string
}

/** In words. The first part that differs says why the later ones do. */
const parts = {
  samples: 'samples',
  parameters: 'first parameters',
  results: 'computed bits',
} as const satisfies Record<keyof BitProof, string>

/**
 * Returns the proof that the run began with, the same on all ranks, and the ranks that compute or have something else: with another device, browser, version or data.
 * From then on the run depends on who computes which virtual worker. Undefined where all are like it.
 *
 * `bits`, `adapters`: by rank.
 */
function unlikeBits(
  bits: readonly Bits[],
  adapters: readonly string[],
): { readonly known: BitProof; readonly unlike: Unlike | undefined } {
  const known = bits.find((one) => one.known)?.known ?? bits[0].proof
  const ranksOf = new Map<keyof BitProof, number[]>()
  for (const [rank, { proof }] of bits.entries()) {
    const part = differingPart(proof, known)
    if (part) ranksOf.set(part, [...(ranksOf.get(part) ?? []), rank])
  }
  if (ranksOf.size === 0) return { known, unlike: undefined }
  const each = [...ranksOf].map(([part, ranks]) => {
    const on = [...new Set(ranks.map((rank) => adapters[rank]))].join(', ')
    return `on ${formatRanks(ranks)} (${on}) the ${parts[part]}`
  })
  const text = `${each.join(', and ')} differ from those that the run began with, so its weights depend on which ranks train`
  const ranks = [...ranksOf.values()].flat()
  return { known, unlike: { ranks, text: text.slice(0, maxUnlikeChars) } }
}

const differingPart = (one: BitProof, other: BitProof): keyof BitProof | undefined =>
  (Object.keys(parts) as (keyof BitProof)[]).find((key) => one[key] !== other[key])
