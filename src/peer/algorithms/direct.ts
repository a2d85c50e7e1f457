/**
 * Every rank with every other, without steps in between: one hop for what the ring takes N-1 for, where all are linked.
 *
 * Sums are made in the ring's order, so that the choice of algorithm never changes a result's bits.
 */
import { type ChunkRange, type Fold, modulo, type Plan, type Receive, type Send } from './plan.ts'
import type { RingArguments } from './ring.ts'

const others = ({ rank, size }: { rank: number; size: number }): number[] =>
  Array.from({ length: size - 1 }, (_, hop) => modulo(rank + 1 + hop, size))

/** Whose parts make chunk `owner`, in order, `own` in the place of `rank`; receives come from `others` in their order. */
const orderOf = (owner: number, rank: number, size: number): (number | 'own')[] =>
  Array.from({ length: size }, (_, hop) => {
    const from = modulo(owner + 1 + hop, size)
    return from === rank ? 'own' : modulo(from - rank - 1, size)
  })

/** cost: 1 hop; (N-1)/N of the bytes sent per rank, and as many held. */
export function directReduceScatter({ rank, size, chunks }: RingArguments): Plan {
  const range = chunks[rank]
  return {
    sends: others({ rank, size }).map(
      (peer): Send => ({ peer, step: 0, chunk: peer, range: chunks[peer] }),
    ),
    receives: others({ rank, size }).map(
      (peer): Receive => ({ peer, step: 0, chunk: rank, range, into: 'aside' }),
    ),
    folds: size > 1 ? [{ range, sources: orderOf(rank, rank, size) }] : [],
  }
}

/** cost: 1 hop; (N-1)/N of the bytes sent per rank. `after`: the own chunk is what a plan's first fold makes. */
export function directAllGather({ rank, size, chunks }: RingArguments, isAfterFold = false): Plan {
  const step = isAfterFold ? 1 : 0
  return {
    sends: others({ rank, size }).map(
      (peer): Send => ({
        peer,
        step,
        chunk: rank,
        range: chunks[rank],
        ...(isAfterFold && { after: { fold: 0 } }),
      }),
    ),
    receives: others({ rank, size }).map(
      (peer): Receive => ({ peer, step, chunk: peer, range: chunks[peer], into: 'copy' }),
    ),
    folds: [],
  }
}

/** cost: 2 hops; 2(N-1)/N of the bytes sent per rank. */
export function directAllReduce(given: RingArguments): Plan {
  const scatter = directReduceScatter(given)
  const gather = directAllGather(given, true)
  return {
    sends: [...scatter.sends, ...gather.sends],
    receives: [...scatter.receives, ...gather.receives],
    folds: scatter.folds,
  }
}

/** Everything to everyone, summed everywhere. cost: 1 hop; N-1 times the bytes sent per rank, and as many held. */
export function oneShotAllReduce({ rank, size, chunks }: RingArguments): Plan {
  const range: ChunkRange = { start: 0, end: chunks[size - 1].end }
  return {
    sends: others({ rank, size }).map((peer): Send => ({ peer, step: 0, chunk: 0, range })),
    receives: others({ rank, size }).map(
      (peer): Receive => ({ peer, step: 0, chunk: 0, range, into: 'aside' }),
    ),
    folds:
      size > 1
        ? chunks.map(
            (chunk, owner): Fold => ({ range: chunk, sources: orderOf(owner, rank, size) }),
          )
        : [],
  }
}

export interface RootedArguments {
  rank: number
  size: number
  root: number
  /** One rank's elements: the whole buffer of a broadcast, one chunk of a gather. units: elements. */
  length: number
}

/** cost: 1 hop; the root sends N-1 times the bytes. */
export function directBroadcast({ rank, size, root, length }: RootedArguments): Plan {
  const range = { start: 0, end: length }
  if (rank === root) {
    const sends = others({ rank, size }).map((peer): Send => ({ peer, step: 0, chunk: 0, range }))
    return { sends, receives: [], folds: [] }
  }
  return {
    sends: [],
    receives: [{ peer: root, step: 0, chunk: 0, range, into: 'copy' }],
    folds: [],
  }
}

/** cost: 1 hop; the root receives, and holds, N-1 times the bytes. order: as `lineReduce`. */
export function directReduce({ rank, size, root, length }: RootedArguments): Plan {
  const range = { start: 0, end: length }
  if (rank !== root)
    return { sends: [{ peer: root, step: 0, chunk: 0, range }], receives: [], folds: [] }
  return {
    sends: [],
    receives: others({ rank, size }).map(
      (peer): Receive => ({ peer, step: 0, chunk: 0, range, into: 'aside' }),
    ),
    folds: size > 1 ? [{ range, sources: orderOf(root, rank, size) }] : [],
  }
}

/** The `length` elements from the place of `index` on. */
const slot = (index: number, length: number): ChunkRange => ({
  start: index * length,
  end: (index + 1) * length,
})

/** Each rank's elements to the root's places; the root's own are there. cost: 1 hop; the root receives N-1 times the bytes. */
export function directGather({ rank, size, root, length }: RootedArguments): Plan {
  if (rank !== root) {
    const range = slot(0, length)
    return { sends: [{ peer: root, step: 0, chunk: rank, range }], receives: [], folds: [] }
  }
  const receives = others({ rank, size }).map(
    (peer): Receive => ({ peer, step: 0, chunk: peer, range: slot(peer, length), into: 'copy' }),
  )
  return { sends: [], receives, folds: [] }
}

/** The root's places to the ranks; it keeps its own. cost: 1 hop; the root sends N-1 times the bytes. */
export function directScatter({ rank, size, root, length }: RootedArguments): Plan {
  if (rank === root) {
    const sends = others({ rank, size }).map(
      (peer): Send => ({ peer, step: 0, chunk: peer, range: slot(peer, length) }),
    )
    return { sends, receives: [], folds: [] }
  }
  const range = slot(0, length)
  return {
    sends: [],
    receives: [{ peer: root, step: 0, chunk: rank, range, into: 'copy' }],
    folds: [],
  }
}

/** Place p of the input to place `rank` of rank p's output. cost: 1 hop; N-1 times `length` elements sent per rank. */
export function directAllToAll({ rank, size, length }: Omit<RootedArguments, 'root'>): Plan {
  return {
    sends: others({ rank, size }).map(
      (peer): Send => ({ peer, step: 0, chunk: peer, range: slot(peer, length) }),
    ),
    receives: others({ rank, size }).map(
      (peer): Receive => ({ peer, step: 0, chunk: peer, range: slot(peer, length), into: 'copy' }),
    ),
    folds: [],
  }
}

/** One message of `length` elements. */
export function pointToPoint(side: 'send' | 'receive', peer: number, length: number): Plan {
  const transfer = { peer, step: 0, chunk: 0, range: { start: 0, end: length } }
  return side === 'send'
    ? { sends: [transfer], receives: [], folds: [] }
    : { sends: [], receives: [{ ...transfer, into: 'copy' }], folds: [] }
}
