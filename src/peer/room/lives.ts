/**
 * Names of a member among those of an elastic run. A tab that is left out and comes again has the same id in the room, but is another member:
 * each life has the id, the epoch in which it came, and the hash of the key with which it signs (life-keys.ts), with points between them.
 */
export const lifeOf = (
  { id, keyHash }: { readonly id: string; readonly keyHash?: string | undefined },
  epoch: number,
): string => (keyHash === undefined ? `${id}.${epoch}` : `${id}.${epoch}.${keyHash}`)

/** The id in the room of which this is a life. */
export const memberOf = (life: string): string => life.split('.')[0]

/** Undefined for a life that signs nothing. */
export const keyHashOf = (life: string): string | undefined => life.split('.')[2]
