import type { Trace } from '../trace/trace.ts'
import type { GraphNode } from '../trace/value.ts'

/** Purposes of a node of a training step. Recomputing a checkpointed region belongs to backward. */
export const phases = ['forward', 'backward', 'optimizer'] as const
export type Phase = (typeof phases)[number]

/** Device time by phase; what they are to each other counts, not their sum. */
export type PhaseShares = Readonly<Record<Phase, number>>

/** Dispatches [start, end) of one phase. */
export interface PhaseRange {
  readonly phase: Phase
  readonly start: number
  readonly end: number
}

/**
 * The phase of each node of forward and backward, in their order.
 *
 * A rewrite that joins a node of forward and one of backward gives the result the later id, so it counts as backward (a cross entropy
 * with its gradient). What follows the last backward pass (copies of gradients, sums over micro-steps) belongs to it.
 */
export const phasesOf = (
  { backwards }: Pick<Trace, 'backwards'>,
  nodes: readonly GraphNode[],
): Phase[] =>
  nodes.map(({ id }) => {
    const ahead = backwards.filter(({ to }) => id < to)
    if (ahead.length === 0) return backwards.length > 0 ? 'backward' : 'forward'
    return ahead.some(({ from }) => id >= from) ? 'backward' : 'forward'
  })

/** Neighbouring dispatches of one phase as ranges. `ends`: by dispatching node, the dispatches up to its last. */
export function phaseRanges(phases: readonly Phase[], ends: readonly number[]): PhaseRange[] {
  const ranges: PhaseRange[] = []
  phases.forEach((phase, i) => {
    const last = ranges[ranges.length - 1]
    const start = last?.end ?? 0
    if (ends[i] === start) return
    if (last?.phase === phase) ranges[ranges.length - 1] = { ...last, end: ends[i] }
    else ranges.push({ phase, start, end: ends[i] })
  })
  return ranges
}

/** The phases of forward and backward, cut where a bucket's gradients are complete: with several ranks a submit ends there. */
export const computeRanges = ({
  phases,
  updates,
  computeEnd,
}: {
  readonly phases: readonly PhaseRange[]
  readonly updates: readonly { readonly gradientsEnd: number }[]
  readonly computeEnd: number
}): PhaseRange[] =>
  phases
    .filter(({ end }) => end <= computeEnd)
    .flatMap(({ phase, start, end }) => {
      const inside = updates.slice(0, -1).map(({ gradientsEnd }) => gradientsEnd)
      const cuts = [...new Set([start, ...inside, end])].filter((cut) => cut >= start && cut <= end)
      cuts.sort((a, b) => a - b)
      return cuts.slice(1).map((cut, i) => ({ phase, start: cuts[i], end: cut }))
    })
