import type { CollectiveGroup } from '../peer/collective-group.ts'

/** Every rank's text, in rank order. All ranks call it alike. errors: the group's. */
export async function gatherTexts(group: CollectiveGroup, own: string): Promise<readonly string[]> {
  const told = await group.allGatherBytes(new TextEncoder().encode(own))
  return told.map((bytes) => new TextDecoder().decode(bytes))
}
