/**
 * Which arrays calls under way read and write, in all groups of this tab: a call that would disturb an earlier one waits until that has ended.
 *
 * So one array in two calls at once is as on one stream of a GPU: the second takes what the first leaves. Ranks that make their calls in one
 * order wait in one order.
 */

/** Memory that a call reads and writes: arrays, by their bytes, and tensors. */
export interface Uses {
  readonly reads: readonly object[]
  readonly writes: readonly object[]
}

interface Use {
  readonly from: number
  readonly end: number
  readonly isWrite: boolean
  readonly over: Promise<unknown>
}

/** By what holds the contents. */
const underWay = new WeakMap<object, Set<Use>>()

const placeOf = (held: object) =>
  ArrayBuffer.isView(held)
    ? { of: held.buffer, from: held.byteOffset, end: held.byteOffset + held.byteLength }
    : { of: held, from: 0, end: 1 }

type Place = ReturnType<typeof placeOf>
const overlap = (a: Omit<Place, 'of'>, b: Omit<Place, 'of'>): boolean =>
  a.from < b.end && b.from < a.end

/** Returns whether two arrays have bytes in common. */
export const share = (a: ArrayBufferView, b: ArrayBufferView): boolean =>
  a.buffer === b.buffer && overlap(placeOf(a), placeOf(b))

/** The earlier calls for which one with these uses has to wait. */
export function callsBefore({ reads, writes }: Uses): Promise<unknown>[] {
  const before = (held: object, isWrite: boolean) => {
    const place = placeOf(held)
    return [...(underWay.get(place.of) ?? [])].flatMap((use) =>
      (isWrite || use.isWrite) && overlap(use, place) ? [use.over] : [],
    )
  }
  return [
    ...writes.flatMap((held) => before(held, true)),
    ...reads.flatMap((held) => before(held, false)),
  ]
}

/** Has later calls wait for one that is `over` when that settles. */
export function noteCall({ reads, writes }: Uses, over: Promise<unknown>): void {
  const note = (held: object, isWrite: boolean) => {
    const { of, from, end } = placeOf(held)
    const uses = underWay.get(of) ?? new Set()
    const use = { from, end, isWrite, over }
    underWay.set(of, uses.add(use))
    const forget = () => uses.delete(use)
    over.then(forget, forget)
  }
  for (const held of writes) note(held, true)
  for (const held of reads) note(held, false)
}
