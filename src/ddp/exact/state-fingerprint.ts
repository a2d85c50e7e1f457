import { PeerError } from '../../util/errors.ts'

/** Returns the label that ranks send with the sums of a step, so that those that hold other states are found before anything is added. */
export const stateFingerprint = (state: string, assignment: string): string =>
  `exact ${state} ${assignment}`

/** Tells whether ranks were found to hold other states. */
export const isDiverged = (error: unknown): boolean =>
  error instanceof PeerError &&
  (error.code === 'train.diverged' ||
    (error.code === 'peer.mismatch' && /\bexact [\da-f]{16} [\da-f]{8}\b/.test(error.message)))
