import type { Algorithm, Operation } from './announcement.ts'
import { hasAlgorithm } from './plan-collective.ts'

/** Up to which size of a buffer each algorithm is taken; larger ones take the ring. units: bytes. */
export interface AlgorithmChoice {
  /** All-reduces up to this size go to everyone at once. */
  readonly oneShotBytes: number
  /** All that is up to this size goes to whom it is for, without steps in between. */
  readonly directBytes: number
}

/** Where nothing has been measured. */
export const defaultChoice: AlgorithmChoice = { oneShotBytes: 8 * 1024, directBytes: 256 * 1024 }

/** The algorithm for a buffer of `sizeBytes` in a group whose ranks are all linked to each other, or only in a ring. */
export function chooseAlgorithm(
  operation: Exclude<Operation, 'send'>,
  sizeBytes: number,
  isFullyLinked: boolean,
  { oneShotBytes, directBytes }: AlgorithmChoice,
): Algorithm {
  if (!hasAlgorithm(operation, 'ring')) return 'direct'
  if (!isFullyLinked) return 'ring'
  if (hasAlgorithm(operation, 'oneShot') && sizeBytes <= oneShotBytes) return 'oneShot'
  return sizeBytes <= directBytes ? 'direct' : 'ring'
}
