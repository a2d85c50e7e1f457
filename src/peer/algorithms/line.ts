/**
 * A line round the ring, from or to a root: the whole buffer walks from rank to rank, each of which passes on parts as they arrive.
 *
 * cost: N-1 steps, pipelined; all bytes sent once by all ranks but the last.
 */
import { type ChunkRange, emptyPlan, modulo, type Plan, type Receive, type Send } from './plan.ts'

export interface LineArguments {
  rank: number
  size: number
  root: number
  /** The whole buffer. */
  range: ChunkRange
}

/** From the root along root + 1, root + 2, ... */
export function lineBroadcast({ rank, size, root, range }: LineArguments): Plan {
  const distance = modulo(rank - root, size)
  return line({ rank, size, distance, range }, 'copy')
}

/** To the root: root + 1 begins, and each adds its own. order: x[root+1] + x[root+2] + ... + x[root]. */
export function lineReduce({ rank, size, root, range }: LineArguments): Plan {
  const distance = modulo(rank - root - 1, size)
  return line({ rank, size, distance, range }, 'reduce')
}

interface Place {
  rank: number
  size: number
  /** Steps from the line's beginning. */
  distance: number
  range: ChunkRange
}

function line({ rank, size, distance, range }: Place, into: 'copy' | 'reduce'): Plan {
  if (size === 1) return emptyPlan
  const isLast = distance === size - 1
  const receives: Receive[] =
    distance === 0
      ? []
      : [
          {
            peer: modulo(rank - 1, size),
            step: distance - 1,
            chunk: 0,
            range,
            into,
            isTotal: into === 'reduce' && isLast,
          },
        ]
  const sends: Send[] = isLast
    ? []
    : [
        {
          peer: modulo(rank + 1, size),
          step: distance,
          chunk: 0,
          range,
          ...(receives.length > 0 && { after: { receive: 0 } }),
        },
      ]
  return { sends, receives, folds: [] }
}
