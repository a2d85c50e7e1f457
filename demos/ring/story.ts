import type { Algorithm } from '../../src/peer/algorithms/operations.ts'
import { type ChunkRange, chunksOf } from '../../src/peer/algorithms/plan.ts'
import { seededRandom } from '../../src/util/virtual-env.ts'
import { algorithmOf, allReduce } from './demo.ts'
import { countDifferent, plainSum } from './plain-sum.ts'
import { type ControlMessage, type DataMessage, plansOf, Recorder, type Since } from './recorder.ts'
import { machinesOf, type RingSettings } from './settings.ts'
import { type Step, stepsIn } from './steps.ts'

/** Part of a chunk, from where the one before it ends: whose contributions it holds. */
export interface HeldRun {
  /** Share of the chunk, up to 1. */
  readonly end: number
  /** Bit r is rank r. */
  readonly ranks: number
}

/** How the ranks' arrays ended, and what a plain loop makes of the same inputs. */
export interface Verdict {
  /** By rank: elements that differ from rank 0's in their bits. */
  readonly unlikeFirst: readonly number[]
  /** Elements of any rank that differ from the plain loop's. */
  readonly unlikeLoop: number
  /** Elements that a loop over ranks 0, 1, 2, ... would have made otherwise. */
  readonly unlikeRankOrder: number
}

/** A run from its launch to its end, to look at whatever moment one likes. Times are ms from the launch. */
export interface Story {
  readonly settings: RingSettings
  readonly algorithm: Algorithm
  readonly machines: readonly number[] | undefined
  readonly chunks: readonly ChunkRange[]
  /** In the order in which they were sent. */
  readonly messages: readonly DataMessage[]
  readonly steps: readonly Step[]
  readonly control: readonly ControlMessage[]
  /** By rank and chunk. */
  readonly held: readonly (readonly (readonly Since<readonly HeldRun[]>[])[])[]
  /** By rank and chunk, where arrays are short enough to be shown. */
  readonly numbers: readonly (readonly (readonly Since<readonly number[]>[])[])[] | undefined
  /** By rank and chunk: it ended with other bits than a plain loop's; nowhere in a run that failed. */
  readonly wrong: readonly (readonly boolean[])[]
  /** When the last rank's call resolved, or the first one's rejected. */
  readonly endMs: number
  /** The error that ended it; empty for none. */
  readonly failure: string
  readonly verdict: Verdict
}

/** Arrays up to this length are shown in numbers. */
const shownLength = 32

/**
 * Runs the all-reduce and records each moment.
 *
 * The world runs twice, with the same seed and so with the same messages at the same times: once with numbers, and once with a word for each
 * element in which rank r has set bit r, so that the sums say whose contributions an element holds.
 * errors: `internal` where the two differ.
 */
export async function tellRun(settings: RingSettings): Promise<Story> {
  const { ranks, length, flip } = settings
  const plans = plansOf(settings)
  const isShort = length <= shownLength
  let isFlipDue = flip > 0
  // In the second half, if there is one, so that some ranks have the true sum.
  const flipsIn = plans.some(({ receives }) => receives.some(({ into }) => into === 'copy'))
    ? 'copy'
    : 'sum'
  const numbers = new Recorder<Float32Array, number[]>(
    settings,
    plans,
    (part) => (isShort ? [...part] : []),
    ({ into }, bytes) => {
      if (!isFlipDue || into !== flipsIn) return
      isFlipDue = false
      bytes[2] ^= 0x40
    },
  )
  const inputs = drawInputs(settings)
  const outcome = await allReduce(settings, inputs, numbers)
  const masks = new Recorder<Uint32Array, HeldRun[]>(settings, plans, heldRuns)
  const marks = inputs.map((_, rank) => new Uint32Array(length).fill(1 << rank))
  await allReduce(settings, marks, masks)
  if (
    masks.data.length !== numbers.data.length ||
    masks.data.at(-1)?.arrivedMs !== numbers.data.at(-1)?.arrivedMs
  )
    throw new Error('internal: two runs of the ring demo differ. This is a bug in Tabring.')

  const algorithm = algorithmOf(settings)
  const machines = machinesOf(settings)
  const { results, resolvedMs, failure } = outcome
  const loop = plainSum(inputs, algorithm === 'hierarchical' ? machines : undefined)
  const lastMs = Math.max(
    0,
    ...numbers.data.map(({ arrivedMs, sentMs }) =>
      Number.isFinite(arrivedMs) ? arrivedMs : sentMs,
    ),
  )
  const chunks = chunksOf(length, ranks)
  return {
    ...{ settings, algorithm, machines, failure, chunks },
    wrong: inputs.map((_, rank) =>
      chunks.map(({ start, end }) => {
        const part = failure ? loop : results[rank]
        return countDifferent(part.subarray(start, end), loop.subarray(start, end)) > 0
      }),
    ),
    messages: numbers.data,
    steps: stepsIn(numbers.data),
    control: numbers.control,
    held: masks.held,
    numbers: isShort ? numbers.held : undefined,
    endMs: Math.max(lastMs, ...resolvedMs.filter(Number.isFinite)),
    verdict: {
      unlikeFirst: results.map((result) => countDifferent(result, results[0])),
      unlikeLoop: results.reduce((sum, result) => sum + countDifferent(result, loop), 0),
      unlikeRankOrder: countDifferent(rankOrderSum(inputs), loop),
    },
  }
}

/** By rank: numbers with one decimal, from -9.9 to 9.9. Most of them have no exact float32, so the order of additions shows in the bits. */
export function drawInputs({ ranks, length, seed }: RingSettings): Float32Array[] {
  const draw = seededRandom(seed + 1000)
  return Array.from({ length: ranks }, () =>
    Float32Array.from({ length }, () => Math.round(draw() * 198 - 99) / 10),
  )
}

function rankOrderSum(inputs: readonly Float32Array[]): Float32Array {
  return inputs[0].map((_, i) =>
    inputs.reduce((sum, input, rank) => (rank === 0 ? input[i] : Math.fround(sum + input[i])), 0),
  )
}

/** Equal words side by side as one. */
function heldRuns(part: Uint32Array): HeldRun[] {
  const runs: HeldRun[] = []
  for (let i = 0; i < part.length; i++)
    if (i + 1 === part.length || part[i] !== part[i + 1])
      runs.push({ end: (i + 1) / part.length, ranks: part[i] })
  return runs
}
