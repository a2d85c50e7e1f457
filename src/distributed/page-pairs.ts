import { toHex } from '../util/env.ts'

/** Message channels between ranks of one page: here, or in its workers that were lent the page. */

/** Equal for all that shares this module: one page, or one worker. */
export const pageTag = toHex(crypto.getRandomValues(new Uint8Array(16)))

const waiting = new Map<string, MessagePort>()

/** One end of a channel; who asks second for the same key gets the other. */
export function pagePair(key: string): MessagePort {
  const other = waiting.get(key)
  if (other) {
    waiting.delete(key)
    return other
  }
  const { port1, port2 } = new MessageChannel()
  waiting.set(key, port2)
  return port1
}

/** The end that nobody asked for is no longer kept. */
export function dropPagePair(key: string): void {
  waiting.get(key)?.close()
  waiting.delete(key)
}
