/**
 * Names of a member among those of an elastic run. A tab that is left out and comes again has the same id in the room, but is another member:
 * each life has the id, a point, and the epoch in which it came.
 */
export const lifeOf = ({ id }: { readonly id: string }, epoch: number): string => `${id}.${epoch}`

/** The id in the room of which this is a life. */
export const memberOf = (life: string): string => life.split('.')[0]
