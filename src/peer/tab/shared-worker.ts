import { toHex } from '../../util/env.ts'
import { HashStore } from '../store/hash-store.ts'
import { serveStore } from '../store/port-store.ts'
import { lockFree } from './web-locks.ts'

/**
 * The broker between the tabs of one browser: a SharedWorker that gives all of them one tag, by which they recognise
 * each other in a room's lobby, and hands every pair that asks for the same key the two ends of a MessageChannel.
 *
 * It also keeps stores, by which tabs find one another without a server: one for each room, as long as a tab has it open. A tab that has
 * gone is known by its lock; where a browser has no Web Locks, what it left stays until the last tab closes.
 *
 * It sees no data: messages on a port go from tab to tab. Storage partitions (another profile, a private window) have a
 * separate broker and so another tag.
 */

export type BrokerRequest =
  /** The lock that a tab holds as long as it is there. */
  | { type: 'here'; lock: string }
  | { type: 'pair'; key: string }
  | { type: 'cancel'; key: string }
  | { type: 'store'; room: string; port: MessagePort }
export type BrokerReply =
  | { type: 'tag'; hostTag: string }
  | { type: 'port'; key: string; port: MessagePort }

const hostTag = toHex(crypto.getRandomValues(new Uint8Array(16)))
/** Who asked for a key and waits for the other side. */
const waiting = new Map<string, MessagePort>()
const rooms = new Map<string, { store: HashStore; users: number }>()

/** Returns what ends this use of the room. */
function openRoom(room: string, port: MessagePort): () => void {
  const entry = rooms.get(room) ?? { store: new HashStore(), users: 0 }
  rooms.set(room, entry)
  entry.users += 1
  return serveStore(entry.store, port, () => {
    entry.users -= 1
    if (entry.users > 0) return
    entry.store.close()
    rooms.delete(room)
  })
}

function serve(tab: MessagePort): void {
  const reply = (to: MessagePort, message: BrokerReply, transfer: Transferable[] = []) =>
    to.postMessage(message, transfer)
  const stores: (() => void)[] = []
  const leave = () => {
    for (const [key, port] of waiting) if (port === tab) waiting.delete(key)
    for (const close of stores) close()
    tab.close()
  }

  tab.onmessage = ({ data }: MessageEvent<BrokerRequest>) => {
    if (data.type === 'here') {
      // Ports do not report that a tab has gone.
      void lockFree(data.lock, new AbortController().signal).then(leave)
      return
    }
    if (data.type === 'store') {
      stores.push(openRoom(data.room, data.port))
      return
    }
    const other = waiting.get(data.key)
    if (data.type === 'cancel') {
      if (other === tab) waiting.delete(data.key)
      return
    }
    if (!other || other === tab) {
      waiting.set(data.key, tab)
      return
    }
    waiting.delete(data.key)
    const { port1, port2 } = new MessageChannel()
    reply(other, { type: 'port', key: data.key, port: port1 }, [port1])
    reply(tab, { type: 'port', key: data.key, port: port2 }, [port2])
  }
  reply(tab, { type: 'tag', hostTag })
}

// TypeScript's DOM library has no SharedWorkerGlobalScope.
const scope = globalThis as unknown as { onconnect: (event: MessageEvent) => void }
scope.onconnect = ({ ports }) => serve(ports[0])
