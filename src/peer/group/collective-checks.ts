/** Refusals of a group's calls. */
import { clipped } from '../../util/clipped.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { isRecord, quoted } from '../../util/kind-of.ts'
import {
  checkArgument,
  checkChoice,
  checkNumber,
  checkOptions,
  isCount,
  isNoNan,
} from '../../util/options.ts'
import type { AlgorithmChoice } from '../algorithms/algorithm-choice.ts'
import { type Algorithm, algorithms, type Operation } from '../algorithms/operations.ts'
import { hasAlgorithm } from '../algorithms/plan-collective.ts'
import { isTag, lastExplicitBucket } from '../collective/announcement.ts'
import type { CollectiveOptions } from '../collective/collectives.ts'
import { reduceOps } from '../collective/element.ts'

/** An operation of all ranks of a group. */
export type Collective = Exclude<Operation, 'send'>

/** Options of `CollectiveGroup.send` and `recv`. */
export interface MessageOptions {
  /** Messages with different tags may overtake each other. 0 to 65000, default 0. */
  tag?: number
  /** How long the message may make no progress before it fails. Default: the group's `deadlineMs`. units: ms. */
  deadlineMs?: number
  /** Name in errors. */
  label?: string
  /** @internal Its number among those of the same partner and tag, from `reserveMessage`. */
  sequence?: number
}

/** A group, as far as its calls are checked and begun. */
export interface CalledGroup {
  readonly rank: number
  readonly size: number
  readonly ranks: readonly number[]
  readonly isFullyLinked: boolean
  readonly machines: readonly number[] | undefined
  readonly choice: AlgorithmChoice
  readonly deadlineMs: number
}

/** Returns whether it is a whole number of at least 0: for `checkNumber`. */
export const isWhole = (value: number): boolean => Number.isSafeInteger(value) && value >= 0

/** errors: `config.invalid` for an unknown option, and for a value that it cannot have. */
export function checkCollective(operation: string, options: CollectiveOptions): void {
  const { sequence, alignment, deadlineMs, op, algorithm } = checkOptions(operation, options, {
    sequence: true,
    bucket: 'number',
    alignment: true,
    deadlineMs: true,
    op: true,
    algorithm: true,
    choice: 'object',
    label: 'text',
    onstarted: 'function',
  })
  const isSequence = (value: number) => isWhole(value) && value < 2 ** 32
  checkNumber(operation, 'sequence', sequence, isSequence, 'a whole number below 2^32')
  checkNumber(operation, 'alignment', alignment, isCount, 'a whole number above 0')
  checkNumber(operation, 'deadlineMs', deadlineMs, (ms) => ms > 0, 'above 0')
  checkChoice(operation, 'op', op, reduceOps)
  checkChoice(operation, 'algorithm', algorithm, algorithms)
}

/** errors: as `checkCollective`. */
export function checkMessage(side: 'send' | 'receive', options: MessageOptions): void {
  checkOptions(side, options, { tag: true, deadlineMs: true, label: 'text', sequence: true })
  checkNumber(side, 'deadlineMs', options.deadlineMs, (ms) => ms > 0, 'above 0')
}

/** errors: a TypeError for what is no choice of algorithms. */
export function checkAlgorithms(choice: AlgorithmChoice): void {
  const isChoice =
    isRecord(choice) &&
    [choice.oneShotMaxBytes, choice.directMaxBytes, choice.hierarchicalMaxBytes ?? 0].every(isNoNan)
  checkArgument('group', 'choice', choice, isChoice, 'the largest bytes of each algorithm')
}

const isRank = ({ size }: CalledGroup, rank: number): boolean => isWhole(rank) && rank < size

/** Why a rank is no root; undefined for one. */
export const noRoot = (operation: string, group: CalledGroup, root: number) =>
  isRank(group, root)
    ? undefined
    : `${operation}: expected a root from 0 to ${group.size - 1}, got ${quoted(root)}. Correct the rank.`

/** Why a tag is invalid; undefined for a valid one. */
export const noTag = (side: string, tag: number) =>
  isTag(tag)
    ? undefined
    : `${side}: tag must be a whole number from 0 to ${lastExplicitBucket}, got ${quoted(tag)}. Choose another tag.`

/** Why no message goes to or comes from a rank; undefined if one may. */
export const noPeer = (side: string, group: CalledGroup, peer: number) =>
  isRank(group, peer) && peer !== group.rank
    ? undefined
    : `${side}: expected a rank from 0 to ${group.size - 1} other than this one, ${group.rank}, got ${quoted(peer)}. Correct the rank.`

/** Why a group cannot run an operation by an algorithm; undefined if it can. */
export function noAlgorithm(
  operation: Collective,
  { isFullyLinked, size }: CalledGroup,
  algorithm: Algorithm,
  machines: readonly number[] | undefined,
): string | undefined {
  if (!hasAlgorithm(operation, algorithm))
    return `${operation}: algorithm "${clipped(String(algorithm))}" is not available for this operation. Omit it to use the default.`
  if (algorithm !== 'ring' && !isFullyLinked && size > 1)
    return `${operation}: algorithm "${clipped(algorithm)}" needs links between all ranks, but these are linked in a ring. Add links, or omit the algorithm.`
  if (algorithm === 'hierarchical' && machines?.length !== size)
    return `${operation}: algorithm "hierarchical" needs the machines of all ${size} ranks, got ${machines ? `those of ${machines.length}` : 'none'}. Set machines in group.choice, the same on all ranks, or omit the algorithm.`
  return undefined
}

/** errors: `peer.mismatch` for another number of elements. */
export function checkLength(
  operation: string,
  { rank, size }: CalledGroup,
  actual: number,
  expected: number,
  what: string,
): void {
  if (actual === expected) return
  throw new PeerError(
    'peer.mismatch',
    `${operation}: rank ${rank} of ${size} expected ${expected} elements of ${what}, got ${actual}. Pass all ranks' parts on the root, and nothing on the others.`,
  )
}

export const refuse = (text: string): Promise<never> =>
  Promise.reject(new PeerError('peer.mismatch', text))

/** Returns the error of a call with a group that has ended. */
export const destroyed = (where: string, { ranks }: CalledGroup): TabringError =>
  new TabringError(
    'graph.misuse',
    `${where}: the process group of ranks [${ranks.join(', ')}] has been destroyed. Use it before destroyProcessGroup(), or create a new one with newGroup().`,
  )
