import { type Env, systemEnv, toHex } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { startWorker } from '../../util/start-worker.ts'
import type { BrokerReply, BrokerRequest } from './shared-worker.ts'
import { holdLock, lockFree } from './web-locks.ts'

/** The broker starts in a few ms; a browser that blocks it (storage settings) may never answer. units: ms. */
const brokerTimeoutMs = 3_000
/** The other tab asks as soon as its own `assign` has come. units: ms. */
const pairTimeoutMs = 10_000

/** One end of a channel to another tab of this browser. */
export interface LocalPair {
  port: MessagePort
  /**
   * Resolves within a few ms of the other tab's end: closed, crashed, or released. Ports do not report that (Chromium 156 fires no
   * `close`, whether the other side was closed or its tab was closed, went elsewhere or crashed), so each side holds a Web Lock that the
   * other one waits for; the browser frees the locks of a dead tab. Never resolves where a browser has no Web Locks: there, heartbeats are left.
   */
  gone: Promise<void>
  /** Lets go of the lock, so the other side sees this one as gone; idempotent. The port is its owner's to close. */
  release(): void
}

/** This tab's access to the other tabs of its browser. */
export interface LocalPorts {
  /** Equal in all tabs that can reach each other by ports; 32 hex digits. */
  readonly hostTag: string
  /**
   * One end of a channel, once the other tab has asked for the same key; a key is good for one pair, and one side says 0, the
   * other 1. errors: PeerError `peer.unreachable` when it did not ask in time.
   */
  pair(key: string, side: 0 | 1, peerName: string): Promise<LocalPair>
  /** A port to a store that all tabs share that open the same room: for `PortStore`. It ends with these ports. */
  openStore(room: string): MessagePort
  close(): void
}

/**
 * Connects to the browser's broker; null where SharedWorker is missing (some mobile browsers) or does not start.
 *
 * `onUnloaded`: called before that, with the reason in words, when the browser could not load its file.
 */
export async function openLocalPorts(
  env: Env = systemEnv,
  onUnloaded: (why: string) => void = () => undefined,
): Promise<LocalPorts | null> {
  if (typeof SharedWorker === 'undefined') return null
  let fail!: () => void
  // From the start: the answer may come while the lock is awaited.
  const failed = new Promise<void>((resolve) => {
    fail = resolve
  })
  let port: MessagePort
  try {
    const start = () =>
      new SharedWorker(new URL('./shared-worker.ts', import.meta.url), {
        type: 'module',
        name: 'tabring-ports',
      })
    port = startWorker('SharedWorker', start, (why) => {
      onUnloaded(why)
      fail()
    }).port
  } catch {
    return null // blocked by the browser's settings: such a tab uses WebRTC
  }
  const waiting = new Map<string, (port: MessagePort) => void>()
  const ask = (request: BrokerRequest) => port.postMessage(request)

  // Held before the broker can look for it: when it is free, this tab has gone, and what it left there can go.
  const lock = `tabring tab ${toHex(env.random(16))}`
  const release = await holdLock(lock)
  const end = () => {
    port.close()
    release()
  }
  const hostTag = await new Promise<string | null>((resolve) => {
    const cancel = env.after(brokerTimeoutMs, () => resolve(null))
    failed.then(() => {
      cancel()
      resolve(null)
    })
    port.onmessage = ({ data }: MessageEvent<BrokerReply>) => {
      if (data.type === 'tag') {
        cancel()
        resolve(data.hostTag)
        return
      }
      const take = waiting.get(data.key)
      waiting.delete(data.key)
      if (take) take(data.port)
      else data.port.close()
    }
    ask({ type: 'here', lock })
  })
  if (hostTag === null) {
    end()
    return null
  }
  return {
    hostTag,
    async pair(key, side, peerName) {
      // Held before the other side can know of the pair, so that it never finds the lock free too early.
      const release = await holdLock(lockName(key, side))
      const watch = new AbortController()
      try {
        const own = await new Promise<MessagePort>((resolve, reject) => {
          const cancel = env.after(pairTimeoutMs, () => {
            waiting.delete(key)
            ask({ type: 'cancel', key })
            reject(
              new PeerError(
                'peer.unreachable',
                `link to ${peerName}: no port: the other tab requested none within ${pairTimeoutMs} ms. Is it frozen or being debugged?`,
              ),
            )
          })
          waiting.set(key, (one) => {
            cancel()
            resolve(one)
          })
          ask({ type: 'pair', key })
        })
        return {
          port: own,
          gone: lockFree(lockName(key, side === 0 ? 1 : 0), watch.signal),
          release() {
            watch.abort()
            release()
          },
        }
      } catch (thrown) {
        release()
        throw thrown
      }
    },
    openStore(room) {
      const { port1, port2 } = new MessageChannel()
      port.postMessage({ type: 'store', room, port: port1 } satisfies BrokerRequest, [port1])
      return port2
    },
    close: end,
  }
}

const lockName = (key: string, side: 0 | 1) => `tabring ${key} ${side}`
