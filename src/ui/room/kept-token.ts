import { toHex } from '../../util/env.ts'
import { recall, remember } from '../parts/tab-memory.ts'

/** Of this page, where they cannot be kept. */
const made = new Map<string, string>()

/**
 * What this tab shows `room`, for all its ranks, to be let in without a question when it comes back, and to be its maker again, if it was: made
 * at the first call. It is kept over a reload where that can be done.
 */
export function tokenFor(room: string): string {
  const key = `tabring-token-${room}`
  const kept = made.get(room) ?? recall(key)
  if (/^[0-9a-f]{32}$/.test(kept)) return kept
  const token = toHex(crypto.getRandomValues(new Uint8Array(16)))
  if (!remember(key, token)) made.set(room, token)
  return token
}
