/** The longest time that a member tells of itself. units: us. */
export const mostUs = 6e7

/** Milliseconds as a member tells them: whole microseconds, within what the room takes. */
export const toUs = (ms: number): number => Math.min(mostUs, Math.max(0, Math.round(1000 * ms)))
