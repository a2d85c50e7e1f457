import { poolAlignment } from '../../graph/memory/pool.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import type { BucketPlace } from '../../graph/trace/exchange.ts'
import type { StepNotes } from '../../graph/trace/step-notes.ts'
import { chunksOf } from '../../peer/algorithms/plan.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { TabringError } from '../../util/errors.ts'
import { isOf, isTexts, kindOf } from '../../util/kind-of.ts'
import { keys } from './collective-keys.ts'
import { GradBucket } from './grad-bucket.ts'

/** The gradients that ranks have of a bucket, in a step. */
export interface RankGradients {
  readonly group: CollectiveGroup
  readonly bucket: Bucket
  readonly place: BucketPlace
  /** This rank's gradients, then its scalar outputs. */
  readonly data: Float32Array<ArrayBuffer>
  /** The step's; they go along with its first bucket. */
  readonly notes: StepNotes
  /** Of the step, and how its collectives travel. */
  readonly step: Pick<CollectiveOptions, 'choice'> & { readonly sequence: number }
  /** Called when all ranks have begun. */
  readonly onstarted: (() => void) | undefined
}

/**
 * Makes one gradient of the ranks', in place: afterwards this rank's slice of `data` holds it, and the last rank's the sums of scalar outputs.
 * The rest is undefined.
 */
export type Reducer = (gradients: RankGradients) => Promise<void>

/** A bucket's data with room for the words of its step's notes. */
const wires = new WeakMap<Bucket, Float32Array<ArrayBuffer>>()

/** The mean, as the notes weigh the ranks: a reduce-scatter. In the first bucket each chunk ends with the notes' words, so that every rank has their sums. */
export const mean: Reducer = async (gradients) => {
  const { group, bucket, place, data, notes, step, onstarted } = gradients
  const { rank, size } = group
  const options = { ...step, bucket: place.index, alignment: poolAlignment, onstarted }
  const ranges = chunksOf(data.length, size, poolAlignment)
  const { start, end } = ranges[rank]
  const gradientsOfRank = data.subarray(start, Math.min(end, bucket.elements))
  if (place.index > 0) {
    await group.reduceScatter(data, options)
    scale(gradientsOfRank, await notes.settled)
    return
  }
  const wire = wireOf(bucket, size)
  // With a unit more for every chunk, chunks hold what they hold without.
  const chunks = ranges.map(({ start, end }, one) => {
    const from = start + poolAlignment * one
    return { start, end, from, to: from + end - start }
  })
  for (const { start, end, from, to } of chunks) {
    wire.set(data.subarray(start, end), from)
    wire.fill(0, to, to + poolAlignment)
    wire.set(notes.words, to)
  }
  await group.reduceScatter(wire, options)
  const { from, to } = chunks[rank]
  data.set(wire.subarray(from, to), start)
  const sums = wire.subarray(to, to + notes.words.length)
  await compareSettings(gradients, sums)
  scale(gradientsOfRank, notes.settle(sums))
}

function wireOf(bucket: Bucket, size: number): Float32Array<ArrayBuffer> {
  let wire = wires.get(bucket)
  if (!wire) {
    wire = new Float32Array(bucket.wireElements + size * poolAlignment)
    wires.set(bucket, wire)
  }
  return wire
}

/** A communication hook with its state. */
export type BoundHook = (bucket: GradBucket) => Float32Array | Promise<Float32Array>

/** The sums over ranks of `own`: scalar outputs, then the words of the step's notes. */
export type SumBeside = (
  own: Float32Array<ArrayBuffer>,
  gradients: RankGradients,
) => Promise<Float32Array<ArrayBuffer>>

const sum: SumBeside = async (own, { group, step }) => {
  await group.allReduce(own, { ...step, bucket: keys.tail })
  return own
}

/** Returns a reducer that applies a hook to weighted gradients. */
export const hookReducer =
  (hook: BoundHook, sumBeside = sum): Reducer =>
  async (gradients) => {
    const { group, bucket, place, data, notes, step, onstarted } = gradients
    const { elements } = bucket
    const tail = data.slice(elements)
    let factor: number
    if (place.index > 0) factor = await notes.settled
    else {
      const own = Float32Array.of(...tail, ...notes.words)
      const sums = await sumBeside(own, gradients)
      tail.set(sums.subarray(0, tail.length))
      const words = sums.subarray(tail.length)
      await compareSettings(gradients, words)
      // The first bucket's hook is called before the others', which wait for this.
      factor = notes.settle(words)
    }
    scale(data.subarray(0, elements), factor)
    const own = new GradBucket(group, bucket, place, data.slice(0, elements), {
      ...step,
      onstarted,
    })
    const reduced = await hook(own)
    if (!isOf(reduced, Float32Array) || reduced.length !== elements) {
      const got = isOf(reduced, Float32Array)
        ? `${reduced.length} elements`
        : kindOf(reduced as unknown)
      throw new TabringError(
        'graph.misuse',
        `registerCommHook: the hook must return a Float32Array of the bucket's ${elements} elements, got ${got}. Return an array of the length of bucket.buffer().`,
      )
    }
    data.set(reduced)
    data.set(tail, elements)
  }

/** All ranks come here with the same sums, so they ask for each other's settings together. errors: those of `StepNotes.compare`. */
function compareSettings(
  { group, notes, step }: RankGradients,
  sums: Float32Array<ArrayBuffer>,
): Promise<void> {
  return notes.compare(sums, group.size, (own) =>
    gatherJson('settings of the update', group, own, isTexts, { ...step, bucket: keys.settings }),
  )
}

function scale(values: Float32Array, factor: number): void {
  if (factor === 1) return
  for (let i = 0; i < values.length; i++) values[i] *= factor
}
