import { PeerError } from '../../util/errors.ts'

/** The group whose ranks announce lengths: see CollectiveGroup. */
interface AnnouncingGroup {
  readonly size: number
  readonly ranks: readonly number[]
  abort(error: PeerError): void
}

/** Maximum that one call allocates on the word of other ranks. units: bytes. */
export const maxAnnouncedBytes = 2 ** 30

/**
 * Returns the longest of the lengths that ranks announced, after a look at what `slots` of it would take: a rank that is mistaken or lies
 * must not fill the memory of the others.
 *
 * `rankOf` says whose length the one at a place is. `maxBytes`: of all slots together.
 * errors: `peer.protocol`, naming that rank; the epoch is over, since the others fail with it too or wait for what does not come.
 */
export function longestAnnounced(
  where: string,
  group: AnnouncingGroup,
  lengths: Uint32Array,
  { slots = group.size, rankOf = (place: number) => place, maxBytes = maxAnnouncedBytes } = {},
): number {
  const longest = Math.max(...lengths)
  const max = Math.floor(maxBytes / slots)
  if (longest <= max) return longest
  const rank = group.ranks[rankOf(lengths.indexOf(longest))]
  const error = new PeerError(
    'peer.protocol',
    `${where}: each rank may send at most ${max} bytes, but rank ${rank} announced ${longest}. Send large data in parts, or as tensors.`,
  )
  group.abort(error)
  throw error
}
