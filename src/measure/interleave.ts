import { messageOf } from '../util/errors.ts'

/** By key: a number for each round, or why there are none. */
export type Rounds = Record<string, number[] | { error: string }>

export interface InterleaveOptions {
  /** Returns whether the key is timed in this round; default: in every round. */
  readonly takesPart?: (key: string, round: number) => boolean
  readonly onRound?: (rounds: number) => void
  readonly signal?: AbortSignal
}

/**
 * Times each key once a round, each round beginning with another one, so that changes of the machine affect all keys equally.
 *
 * A key whose timing throws is out, with the reason in its place. errors: the signal's reason when it is aborted.
 */
export async function interleave(
  keys: readonly string[],
  rounds: number,
  time: (key: string) => Promise<number>,
  { takesPart = () => true, onRound, signal }: InterleaveOptions = {},
): Promise<Rounds> {
  const results: Rounds = Object.fromEntries(keys.map((key) => [key, []]))
  for (let round = 0; round < rounds; round++) {
    for (let at = 0; at < keys.length; at++) {
      signal?.throwIfAborted()
      const key = keys[(round + at) % keys.length]
      const sofar = results[key]
      if (!Array.isArray(sofar) || !takesPart(key, round)) continue
      try {
        sofar.push(await time(key))
      } catch (thrown) {
        results[key] = { error: messageOf(thrown) }
      }
    }
    onRound?.(round + 1)
  }
  return results
}
