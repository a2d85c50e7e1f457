import { toHex } from '../../util/env.ts'

/** Message channels between ranks of one page: here, or in its workers that were lent the page. */

/** Equal for all that shares this module: one page, or one worker. */
export const pageTag = toHex(crypto.getRandomValues(new Uint8Array(16)))

/** One end of a channel between two ranks of this page. */
export interface PagePair {
  port: MessagePort
  /** Reports to the other side that this one has gone; idempotent. The port is its owner's to close. */
  release(): void
}

interface Half {
  ongone: () => void
  other?: Half
  /** The end that nobody has asked for yet. */
  spare?: MessagePort
}

const waiting = new Map<string, Half>()

/** One end of a channel; who asks second for the same key gets the other. */
export function pagePair(key: string, ongone: () => void): PagePair {
  const own: Half = { ongone }
  const other = waiting.get(key)
  if (!other) {
    const { port1, port2 } = new MessageChannel()
    own.spare = port2
    waiting.set(key, own)
    return { port: port1, release: () => release(key, own) }
  }
  waiting.delete(key)
  const port = other.spare!
  delete other.spare
  own.other = other
  other.other = own
  return { port, release: () => release(key, own) }
}

function release(key: string, own: Half): void {
  if (own.spare) waiting.delete(key)
  own.spare?.close()
  own.other?.ongone()
  delete own.spare
  delete own.other?.other
  delete own.other
}
