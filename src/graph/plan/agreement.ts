import { clippedMessage } from '../../util/clipped.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'
import { isRecord, isText } from '../../util/kind-of.ts'
import type { CompilingRanks } from '../trace/exchange.ts'

/** Report of a rank on the step that it compiles: the parts that must be equal on all ranks, or why it has none. */
export type Outcomes<T = string> = readonly T[] | { readonly failure: string }

/** Returns a test whether a received value is a valid report. */
const isReport =
  <T>(isOne: (one: unknown) => one is T) =>
  (received: unknown): received is Outcomes<T> =>
    Array.isArray(received) ? received.every(isOne) : isRecord(received) && isText(received.failure)
export const areTexts = isReport(isText)

/** How long a rank whose step cannot be compiled waits for the others to hear of it: it may end with that error. units: ms. */
const failureWaitMs = 2_000

/** Errors that all ranks have. */
const onAllRanks = new WeakSet<object>()

/** Notes that all ranks have this error, and returns it. */
export function noteOnAllRanks<E extends object>(error: E): E {
  onAllRanks.add(error)
  return error
}

/** Returns whether all ranks have this error. */
export const isOnAllRanks = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && onAllRanks.has(error)

export const failureOf = (error: unknown): { readonly failure: string } => ({
  failure: clippedMessage(messageOf(error)),
})

const mismatch = (text: string): PeerError =>
  noteOnAllRanks(new PeerError('peer.mismatch', `compile: ${text}`))

/** Returns the reports of all ranks, in rank order. errors: `peer.mismatch` where the step did not compile on some, naming them and why. */
export function listsOf<T>(
  ranks: readonly number[],
  all: readonly Outcomes<T>[],
): readonly (readonly T[])[] {
  const failed = all.flatMap((received, i) =>
    'failure' in received ? [`rank ${ranks[i]}: ${clippedMessage(received.failure)}`] : [],
  )
  if (failed.length > 0) throw mismatch(`the step did not compile on ${failed.join('; on ')}`)
  return all.flatMap((received) => ('failure' in received ? [] : [received]))
}

/**
 * Compares what ranks compile, before anything is sent. All ranks of the group call it, or `tellFailure`.
 *
 * errors: `peer.mismatch`, the same on all ranks, naming the first line that differs; those of `listsOf`; `peer.*`.
 */
export async function agree(group: CompilingRanks, lines: readonly string[]): Promise<void> {
  if (group.size === 1) return
  const lists = listsOf(group.ranks, await group.gatherJson('compile', lines, areTexts))
  const difference = firstDifference(lists, 'nothing', group.ranks)
  if (!difference) return
  throw mismatch(
    `ranks disagree about the step: ${difference.text}. Compile the same function on all ranks.`,
  )
}

/** A transfer, as one of the ranks traces it. */
export interface TransferRecord {
  readonly from: number
  readonly to: number
  readonly text: string
}

const areTransferRecords = isReport(
  (one): one is TransferRecord =>
    isRecord(one) && Number.isInteger(one.from) && Number.isInteger(one.to) && isText(one.text),
)
/** For a rank that leaves anyway. */
const isAnything = (_: unknown): _ is unknown => true

/**
 * Compares what each two ranks send each other, before anything is sent. Ranks may compile different functions, as long as these fit.
 *
 * All ranks of the group call it, or `tellFailure`. errors: as `agree`.
 */
export async function agreeOnTransfers(
  group: CompilingRanks,
  own: readonly TransferRecord[],
): Promise<void> {
  if (group.size === 1) return
  const { ranks } = group
  const lists = listsOf(ranks, await group.gatherJson('compile', own, areTransferRecords))
  for (const [i, a] of ranks.entries())
    for (const [j, b] of ranks.entries()) {
      if (j <= i) continue
      const between = [lists[i], lists[j]].map((list) =>
        list.flatMap(({ from, to, text }) =>
          (from === a && to === b) || (from === b && to === a) ? [text] : [],
        ),
      )
      const difference = firstDifference(between, 'nothing', [a, b])
      if (difference)
        throw mismatch(
          `ranks disagree about the step: ${difference.text}. Compile functions that send and receive the same.`,
        )
    }
}

/** One group of ranks that compare a step, and how. */
export interface Comparison {
  readonly group: CompilingRanks
  compare(): Promise<void>
}

/** By error of a comparison: the other groups, and which of them had agreed before. */
const otherGroups = new WeakMap<
  object,
  { readonly others: readonly CompilingRanks[]; readonly agreed: readonly CompilingRanks[] }
>()

/** Compares a step in one group after the other. errors: those of the first that fails. Send them with `tellFailure`. */
export async function compareInTurn(comparisons: readonly Comparison[]): Promise<void> {
  const groups = comparisons.map(({ group }) => group)
  for (const [at, { group, compare }] of comparisons.entries()) {
    try {
      await compare()
    } catch (error) {
      const others = groups.filter((one) => one !== group)
      otherGroups.set(error as object, { others, agreed: groups.slice(0, at) })
      throw error
    }
  }
}

/**
 * Informs ranks that wait in `agree` that the step cannot be compiled here; resolves when they know, or soon.
 *
 * `groups`: all of them, for an error from outside of `compareInTurn`. A group that had agreed and does not listen is ended: its ranks may run
 * the step.
 */
export async function tellFailure(
  groups: readonly CompilingRanks[],
  error: unknown,
): Promise<void> {
  const { others, agreed } = otherGroups.get(error as object) ?? { others: groups, agreed: [] }
  const telling = [...new Set(others)].filter(({ size }) => size > 1)
  await Promise.all(
    telling.map(async (group) => {
      const received = group.gatherJson<unknown>('compile', failureOf(error), isAnything)
      const isHeard = await endedOrSoon(received, systemEnv)
      if (!isHeard && agreed.includes(group))
        group.abort(`rank ${group.ranks[group.rank]} could not compile a step: ${messageOf(error)}`)
    }),
  )
}

/** Resolves when `telling` has ended, or soon, then with false: the others may never come. */
export const endedOrSoon = (telling: Promise<unknown>, env: Env): Promise<boolean> =>
  new Promise((resolve) => {
    const cancel = env.after(failureWaitMs, () => resolve(false))
    const end = () => {
      cancel()
      resolve(true)
    }
    telling.then(end, end)
  })
