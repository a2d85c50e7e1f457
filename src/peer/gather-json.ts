import type { CollectiveGroup } from './collective-group.ts'
import type { CollectiveOptions } from './collectives.ts'

/** What every rank says, in rank order: anything that JSON holds. All ranks call it alike. cost, errors: `allGatherBytes`'. */
export async function gatherJson<T>(
  group: CollectiveGroup,
  own: T,
  options: CollectiveOptions = {},
): Promise<T[]> {
  const told = await group.allGatherBytes(new TextEncoder().encode(JSON.stringify(own)), options)
  return told.map((bytes): T => JSON.parse(new TextDecoder().decode(bytes)))
}
