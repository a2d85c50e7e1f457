/** The longest time that a member reports of itself. units: us. */
export const maxUs = 6e7

/** Milliseconds as a member sends them: whole microseconds, within what the room takes. */
export const toUs = (ms: number): number => Math.min(maxUs, Math.max(0, Math.round(1000 * ms)))
