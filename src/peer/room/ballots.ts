/** Ballots number the rosters of an elastic run: from one to the next by at least this, above the 16 bits of a leader's id. */
export const ballotStep = 2 ** 16

/** A ballot is the epoch of a group too, which frames carry in 32 bits. */
export const lastBallot = 2 ** 32 - 1

/**
 * How many calls a ballot may be above the newest that is known, and one more for each second: a member that was apart for a while has called
 * every two seconds.
 */
export const callsAhead = 64
