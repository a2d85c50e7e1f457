import { isHierarchy } from './hierarchical.ts'
import type { Algorithm, Operation } from './operations.ts'
import { hasAlgorithm } from './plan-collective.ts'

/** Up to which size of a buffer each algorithm is taken, in this order; larger ones take the ring. units: bytes. */
export interface AlgorithmChoice {
  /** All-reduces up to this size go to everyone at once. */
  readonly oneShotBytes: number
  /** All that is up to this size goes to whom it is for, without steps in between. */
  readonly directBytes: number
  /** Sums and copies up to this size go inside each machine first; default 0: none. Their order of additions is another. */
  readonly hierarchicalBytes?: number
  /** By rank: which machine it counts to. Default: the group's `machines`. What is hierarchical repeats its bits with the same ones alone. */
  readonly machines?: readonly number[]
}

/** Where nothing has been measured. */
export const defaultChoice: AlgorithmChoice = { oneShotBytes: 8 * 1024, directBytes: 256 * 1024 }

/** How a group's ranks lie. */
export interface Layout {
  /** To each other, and not in a ring alone. */
  readonly isFullyLinked: boolean
  /** By rank, as far as that is known. */
  readonly machines: readonly number[] | undefined
}

/** The algorithm for a buffer of `sizeBytes` in a group whose ranks lie so. */
export function chooseAlgorithm(
  operation: Exclude<Operation, 'send'>,
  sizeBytes: number,
  { isFullyLinked, machines }: Layout,
  { oneShotBytes, directBytes, hierarchicalBytes = 0 }: AlgorithmChoice,
): Algorithm {
  if (!hasAlgorithm(operation, 'ring')) return 'direct'
  if (!isFullyLinked) return 'ring'
  if (hasAlgorithm(operation, 'oneShot') && sizeBytes <= oneShotBytes) return 'oneShot'
  if (sizeBytes <= directBytes) return 'direct'
  const hasLevels = isHierarchy(machines) && hasAlgorithm(operation, 'hierarchical')
  return hasLevels && sizeBytes <= hierarchicalBytes ? 'hierarchical' : 'ring'
}
