/**
 * The ring: data flows one way, from rank r to rank r + 1 (modulo size), and each rank passes on what it received one step before.
 *
 * After reduce-scatter rank r owns chunk r: chunk c starts at rank c + 1 and collects
 *
 *     x[c+1] + x[c+2] + ... + x[size-1] + x[0] + ... + x[c]      (indices modulo size)
 *
 * from left to right, once around the ring, so its bits depend on c and size alone.
 * source: the ring of Baidu's and gloo's all-reduce, shifted so that rank r owns chunk r.
 */
import { type ChunkRange, modulo, type Plan, type Receive, type Send } from './plan.ts'

export interface RingArguments {
  rank: number
  size: number
  /** As many as ranks. */
  chunks: readonly ChunkRange[]
}

/** Afterwards chunk `rank` holds the result, the rest is undefined. cost: N-1 steps; (N-1)/N of the bytes sent per rank. */
export const ringReduceScatter = (given: RingArguments): Plan =>
  onceRound(given, modulo(given.rank - 1, given.size), 0, (chunk) => ({
    into: 'reduce',
    isTotal: chunk === given.rank,
  }))

/** `firstStep`: the number of its first step; the own chunk may be what step `firstStep` - 1 received. cost: as `ringReduceScatter`. */
export const ringAllGather = (given: RingArguments, firstStep = 0): Plan =>
  onceRound(given, given.rank, firstStep, () => ({ into: 'copy' }))

/** Sends chunk `firstOut`, then each time the chunk that the step before has received: the one before it. */
function onceRound(
  { rank, size, chunks }: RingArguments,
  firstOut: number,
  firstStep: number,
  taking: (chunk: number) => Pick<Receive, 'into' | 'isTotal'>,
): Plan {
  const sends: Send[] = []
  const receives: Receive[] = []
  for (let hop = 0; hop < size - 1; hop++) {
    const step = firstStep + hop
    const out = modulo(firstOut - hop, size)
    const into = modulo(out - 1, size)
    sends.push({
      peer: modulo(rank + 1, size),
      step,
      chunk: out,
      range: chunks[out],
      ...(step > 0 && { after: { receive: step - 1 } }),
    })
    receives.push({
      peer: modulo(rank - 1, size),
      step,
      chunk: into,
      range: chunks[into],
      ...taking(into),
    })
  }
  return { sends, receives, folds: [] }
}

/** cost: 2(N-1) steps; 2(N-1)/N of the bytes sent per rank. */
export function ringAllReduce(given: RingArguments): Plan {
  const scatter = ringReduceScatter(given)
  const gather = ringAllGather(given, given.size - 1)
  return {
    sends: [...scatter.sends, ...gather.sends],
    receives: [...scatter.receives, ...gather.receives],
    folds: [],
  }
}
