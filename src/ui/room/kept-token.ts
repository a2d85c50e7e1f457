import { toHex } from '../../util/env.ts'
import { recall, remember } from '../parts/tab-memory.ts'

/** What this tab shows `room` to be its maker again after a reload, if it was: made at the first call. Where it cannot be kept, another one each time. */
export function tokenFor(room: string): string {
  const key = `tabring-token-${room}`
  const kept = recall(key)
  if (/^[0-9a-f]{32}$/.test(kept)) return kept
  const made = toHex(crypto.getRandomValues(new Uint8Array(16)))
  remember(key, made)
  return made
}
