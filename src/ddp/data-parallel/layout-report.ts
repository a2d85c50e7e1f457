import { isText, isTexts } from '../../util/kind-of.ts'

/** Report of a rank on the step that it compiles, besides its buckets. */
export interface LayoutReport {
  /** Names of parameters that `backward` did not reach. */
  readonly unused: readonly string[]
  /** By sync point of forward and backward: its ranks. */
  readonly syncPoints: readonly (readonly number[])[]
  /** Count of a full batch, 0 where ranks have equal weights. */
  readonly samples: number
  /** By group of an optimizer: what compiling has fixed. */
  readonly fixed: readonly string[]
}

/** Maximum count of a batch, which travels in two halves of 16 bits. */
const maxSamples = 2 ** 32 - 1

export const layoutText = ({ unused, syncPoints, samples, fixed }: LayoutReport): string =>
  JSON.stringify([unused, syncPoints, samples, fixed])
export const syncPointsText = (count: number): string => `${count} mid-step collectives`

/** The layout that a rank of `ranks` sent in its first two texts; undefined where it is none. */
export function layoutIn(
  [text, received]: readonly string[],
  ranks: readonly number[],
): LayoutReport | undefined {
  const [unused, syncPoints, samples, fixed] = listIn(text)
  const isRanks = (list: unknown): list is number[] =>
    Array.isArray(list) &&
    list.length <= ranks.length &&
    list.every((rank) => ranks.includes(rank)) &&
    new Set(list).size === list.length
  if (!isTexts(unused) || !isTexts(fixed)) return undefined
  if (!Array.isArray(syncPoints) || !syncPoints.every(isRanks)) return undefined
  if (received !== syncPointsText(syncPoints.length)) return undefined
  if (!Number.isInteger(samples) || Number(samples) < 0 || Number(samples) > maxSamples)
    return undefined
  return { unused, syncPoints, samples: Number(samples), fixed }
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
