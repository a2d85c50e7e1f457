import { load, type SavedState, save } from '../../data/saved-tree.ts'
import type { KeptState } from './kept-state.ts'

/** A kept state as bytes, for a rank that lacks it. */
export const packState = (kept: KeptState): Uint8Array<ArrayBuffer> =>
  save(kept as unknown as SavedState)

/** What `packState` has packed, on a rank that has trained on no samples yet. errors: `data.malformed`. */
export function unpackState(bytes: Uint8Array<ArrayBuffer>): KeptState {
  const { progress, ...state } = load(bytes) as unknown as KeptState
  return { ...state, progress: { ...progress, samples: 0 } }
}
