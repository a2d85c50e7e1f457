import { isHierarchy } from './hierarchical.ts'
import type { Algorithm, Operation } from './operations.ts'
import { hasAlgorithm } from './plan-collective.ts'

/** Largest buffer that each algorithm carries, checked in this order; larger buffers use the ring. units: bytes. */
export interface AlgorithmChoice {
  /** All-reduces up to this size use `oneShot`: each rank sends its whole buffer to all others in one step. */
  readonly oneShotMaxBytes: number
  /** Collectives up to this size use `direct`: data goes straight to its destination, in as few steps as possible. */
  readonly directMaxBytes: number
  /** Sums and copies up to this size use `hierarchical`: inside each machine first. Default 0: never. Sums then add in another order. */
  readonly hierarchicalMaxBytes?: number
  /** Machine of each rank. Default: the group's `machines`. Hierarchical sums have the same bits only with the same machines. */
  readonly machines?: readonly number[]
}

/** Where nothing has been measured. */
export const defaultChoice: AlgorithmChoice = {
  oneShotMaxBytes: 8 * 1024,
  directMaxBytes: 256 * 1024,
}

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
  { oneShotMaxBytes, directMaxBytes, hierarchicalMaxBytes = 0 }: AlgorithmChoice,
): Algorithm {
  if (!hasAlgorithm(operation, 'ring')) return 'direct'
  if (!isFullyLinked) return 'ring'
  if (hasAlgorithm(operation, 'oneShot') && sizeBytes <= oneShotMaxBytes) return 'oneShot'
  if (sizeBytes <= directMaxBytes) return 'direct'
  const hasLevels = isHierarchy(machines) && hasAlgorithm(operation, 'hierarchical')
  return hasLevels && sizeBytes <= hierarchicalMaxBytes ? 'hierarchical' : 'ring'
}
