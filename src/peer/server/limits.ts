import { callsAhead } from '../room/ballots.ts'
import { guestsPerCode } from '../room/code-messages.ts'
import { limits as shared } from '../room/messages.ts'

/** Every limit of the signaling server: what its clients know too, and what it keeps. */
export const limits = {
  ...shared,
  /** Token buckets of bytes: those with which one onlooker asks ranks, and those that the ranks of a room show, before they go to each onlooker. */
  askBytesPerSec: 4 * 1024,
  askBurst: 64 * 1024,
  shownBytesPerSec: 64 * 1024,
  shownBurst: 1024 * 1024,
  /** From the maker's refusal until an address may ask again: so long after the first, and each time twice as long. */
  askAgainMs: 5_000,
  askAgainMaxMs: 600_000,
  /** Addresses of which a room knows how often its maker refused them. */
  declinesPerRoom: 64,
  /** Token bucket of wrong room keys from one address. */
  wrongKeysPerSec: 1 / 60,
  wrongKeyBurst: 10,
  /** Short codes that tabs of one address show; newcomers that one of them answers at once, and those of one address. */
  codesPerAddress: 8,
  guestsPerCode,
  guestsPerAddress: 16,
  /** Token bucket of wrong short codes from one address: a class behind one has some typing errors. */
  wrongCodesPerSec: 1 / 10,
  wrongCodeBurst: 15,
  /** Addresses whose wrong keys and codes, and whose relayed bytes, a server counts: the last ones. */
  addressesKept: 16_384,
  /**
   * Of an elastic run: members that are in it or may come back to it; of which rosters the first half is known; newcomers that get no links; and
   * how far a ballot may be above the newest one: this many rosters, and one more for each second since.
   */
  seatsPerRun: 128,
  halvesPerRun: 64,
  leftOutPerRun: 128,
  /** From the second time that a newcomer to an elastic run is left out until it may get links again: then three times, seven times as long and so on. */
  linkAgainMs: 5_000,
  linkAgainMaxMs: 60_000,
  rostersAhead: callsAhead,
  /** Elastic runs that have ended of which a member may still hear. */
  endedRunsPerRoom: 16,
} as const

/** Those of one server. */
export type Limits = { [K in keyof typeof limits]: number }
