import { type ErrorCode, messageOf, PeerError, TabringError } from '../../util/errors.ts'
import { bytesOf, checkAmount, checkTimeout, keysOf, nameOf } from './check-arguments.ts'
import type { HashStore } from './hash-store.ts'
import type { Store } from './store.ts'
import { TimedStore } from './timed-store.ts'

/** A store that another context keeps, called through a MessagePort: how tabs share the one that a SharedWorker has. */

type Method = Exclude<keyof Store, 'timeoutMs' | 'close'>

type Request =
  | { id: number; method: Method; args: unknown[]; timeoutMs: number }
  /** Its user goes. */
  | { bye: true }
type Reply = { id: number; value: unknown } | { id: number; code: ErrorCode; text: string }

/**
 * Answers the calls that come through `port` out of `shared`, and returns what ends that; `onbye` is called once, when it has ended, by that
 * or because the other side has closed its store. Most platforms do not report a side that ends without closing it.
 */
export function serveStore(shared: HashStore, port: MessagePort, onbye: () => void): () => void {
  const store = shared.share()
  let isOver = false
  const end = () => {
    if (isOver) return
    isOver = true
    port.onmessage = null
    port.close()
    store.close()
    onbye()
  }
  port.onmessage = ({ data }: MessageEvent<Request>) => {
    if ('bye' in data) {
      end()
      return
    }
    const { id, method, args, timeoutMs } = data
    const answer = (reply: Reply) => {
      if (!isOver) port.postMessage(reply)
    }
    store.timeoutMs = timeoutMs
    const call = store[method] as (...given: unknown[]) => Promise<unknown>
    call.apply(store, args).then(
      (value) => answer({ id, value }),
      (thrown) => {
        const code = thrown instanceof TabringError ? thrown.code : 'peer.protocol'
        answer({ id, code, text: messageOf(thrown) })
      },
    )
  }
  port.addEventListener('close', end)
  return end
}

/** An error as it was thrown on the other side; those of wrong types are thrown on this one. */
function errorOf(code: ErrorCode, text: string): TabringError {
  return code.startsWith('peer.') ? new PeerError(code, text) : new TabringError(code, text)
}

interface Pending {
  resolve: (value: never) => void
  reject: (error: TabringError) => void
}

/** The side of `serveStore` that calls. */
export class PortStore extends TimedStore implements Store {
  private readonly pending = new Map<number, Pending>()
  private calls = 0
  private isClosed = false

  constructor(
    private readonly port: MessagePort,
    private readonly onclose: () => void = () => undefined,
  ) {
    super()
    port.onmessage = ({ data }: MessageEvent<Reply>) => {
      const call = this.pending.get(data.id)
      this.pending.delete(data.id)
      if ('code' in data) call?.reject(errorOf(data.code, data.text))
      else call?.resolve(data.value as never)
    }
    port.addEventListener('close', () =>
      this.end('the context that keeps this store is gone. Open it again.'),
    )
  }

  async set(key: string, value: string | Uint8Array): Promise<void> {
    const bytes = bytesOf(nameOf('set', key), value)
    await this.call('set', [key, bytes])
  }

  async get(key: string): Promise<Uint8Array> {
    nameOf('get', key)
    return this.call('get', [key])
  }

  async add(key: string, amount: number): Promise<number> {
    checkAmount(nameOf('add', key), amount)
    return this.call('add', [key, amount])
  }

  async wait(keys: readonly string[], timeoutMs = this.waitMs): Promise<void> {
    checkTimeout('store.wait', timeoutMs)
    await this.call('wait', [keysOf(keys), timeoutMs])
  }

  async compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array> {
    const where = nameOf('compareSet', key)
    return this.call('compareSet', [key, bytesOf(where, expected), bytesOf(where, desired)])
  }

  async deleteKey(key: string): Promise<boolean> {
    nameOf('deleteKey', key)
    return this.call('deleteKey', [key])
  }

  numKeys(): Promise<number> {
    return this.call('numKeys', [])
  }

  close(): void {
    if (this.isClosed) return
    this.port.postMessage({ bye: true } satisfies Request)
    this.end('this store has been closed. Open it again.')
  }

  private call<T>(method: Method, args: unknown[]): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.isClosed) {
        reject(new PeerError('peer.lost', `store.${method}: this store is closed. Open it again.`))
        return
      }
      const id = this.calls++
      this.pending.set(id, { resolve: resolve as Pending['resolve'], reject })
      const request: Request = { id, method, args, timeoutMs: this.waitMs }
      this.port.postMessage(request)
    })
  }

  private end(why: string): void {
    if (this.isClosed) return
    this.isClosed = true
    this.port.onmessage = null
    this.port.close()
    for (const { reject } of this.pending.values())
      reject(new PeerError('peer.lost', `store: ${why}`))
    this.pending.clear()
    this.onclose()
  }
}
