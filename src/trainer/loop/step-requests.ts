import type { ProcessGroup } from '../../peer/group/group.ts'
import type { RankSetup } from './rank-setup.ts'

/** Requests of any of the ranks, for after a step. */
export interface StepRequests {
  readonly isForPause: boolean
  readonly isForSave: boolean
  readonly isForChange: boolean
  /** Of rank 0 alone. */
  readonly isForKeep: boolean
  /** For the next group; of rank 0 alone. */
  readonly isForRegroup: boolean
}

export const noRequests: StepRequests = {
  isForPause: false,
  isForSave: false,
  isForChange: false,
  isForKeep: false,
  isForRegroup: false,
}

/**
 * Sends this rank's requests to the others with the step that begins; what it returns gives those of all ranks, the same on each, once the
 * step has ended. All ranks call it before the same step. errors: the group's.
 */
export function shareRequests(
  group: ProcessGroup,
  { replicas, step }: RankSetup,
  requests: () => StepRequests,
): () => Promise<StepRequests> {
  if (group.size === 1) return async () => requests()
  const own = wordOf(requests())
  const flags = step.flags ?? step.prepared.trace.exchange?.flags
  if (replicas === group && flags) {
    flags.own = own
    return async () => requestsIn(flags.sum)
  }
  // Ranks whose steps carry no such word agree here: queries, pauses and saves come after the same step on all.
  const received = group.allGatherU32(Uint32Array.of(own), { label: 'the requests' })
  received.catch(() => undefined)
  return async () => requestsIn((await received).reduce((sum, word) => sum + word, 0))
}

/**
 * A rank's requests as a word that ranks add up, exact as float32 where it travels with gradients. Up to 127 ranks may ask, each in a digit of
 * its kind.
 */
const digit = 2 ** 7
const kinds = ['isForPause', 'isForSave', 'isForChange'] as const
/** Rank 0 alone asks for these: a bit each. */
const keepWord = digit ** kinds.length
const regroupWord = 2 * keepWord

const wordOf = (requests: StepRequests): number =>
  kinds.reduce(
    (sum, kind, i) => sum + (requests[kind] ? digit ** i : 0),
    (requests.isForKeep ? keepWord : 0) + (requests.isForRegroup ? regroupWord : 0),
  )

function requestsIn(sum: number): StepRequests {
  const [isForPause, isForSave, isForChange] = kinds.map(
    (_, i) => Math.floor(sum / digit ** i) % digit > 0,
  )
  const isForKeep = Math.floor(sum / keepWord) % 2 > 0
  return { isForPause, isForSave, isForChange, isForKeep, isForRegroup: sum >= regroupWord }
}
