import { isText, isTexts } from '../../util/kind-of.ts'

/** What a rank tells of the step that it compiles, besides its buckets. */
export interface ToldLayout {
  /** Names of parameters that `backward` did not reach. */
  readonly unused: readonly string[]
  /** By meeting of ranks in forward and backward: the ranks that meet. */
  readonly meetings: readonly (readonly number[])[]
  /** What counts in a full batch, 0 where ranks weigh the same. */
  readonly samples: number
  /** By group of an optimizer: what compiling has fixed. */
  readonly fixed: readonly string[]
}

/** What counts in a batch travels in two halves of 16 bits. */
const mostSamples = 2 ** 32 - 1

export const layoutText = ({ unused, meetings, samples, fixed }: ToldLayout): string =>
  JSON.stringify([unused, meetings, samples, fixed])
export const meetingsText = (count: number): string => `${count} mid-step collectives`

/** The layout that a rank of `ranks` has told in its first two texts; undefined where it is none. */
export function layoutIn(
  [text, told]: readonly string[],
  ranks: readonly number[],
): ToldLayout | undefined {
  const [unused, meetings, samples, fixed] = listIn(text)
  const isRanks = (list: unknown): list is number[] =>
    Array.isArray(list) &&
    list.length <= ranks.length &&
    list.every((rank) => ranks.includes(rank)) &&
    new Set(list).size === list.length
  if (!isTexts(unused) || !isTexts(fixed)) return undefined
  if (!Array.isArray(meetings) || !meetings.every(isRanks)) return undefined
  if (told !== meetingsText(meetings.length)) return undefined
  if (!Number.isInteger(samples) || Number(samples) < 0 || Number(samples) > mostSamples)
    return undefined
  return { unused, meetings, samples: Number(samples), fixed }
}

/** The list that a text is in JSON; empty where it is none. */
function listIn(text: unknown): readonly unknown[] {
  try {
    const list: unknown = isText(text) && JSON.parse(text)
    return Array.isArray(list) ? list : []
  } catch {
    return []
  }
}
