import { type Env, systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { isText, quoted } from '../../util/kind-of.ts'
import { fromBase64Url, toBase64Url } from '../room/base64url.ts'
import { bytesOf, checkAmount, checkTimeout, keysOf, lateError, nameOf } from './check-arguments.ts'
import type { Store } from './store.ts'
import { addIn, compareSetIn } from './table-rules.ts'
import { TimedStore } from './timed-store.ts'

/** Who waits looks again after this time, should a word that something changed be lost. units: ms. */
const checkAgainMs = 1_000

type Values = Map<string, Uint8Array>

/**
 * A store in a file of the origin private file system: torch.distributed.FileStore. For tabs and workers of one origin in one browser.
 *
 * Each call reads the file, and rewrites it if it changes something, under a Web Lock; a BroadcastChannel wakes up waits. The first to open a
 * room that nobody has open starts with an empty file, so leftovers of a crash are gone.
 */
export class OpfsStore extends TimedStore implements Store {
  private isClosed = false
  private readonly channel: BroadcastChannel
  private readonly changed = new Set<() => void>()

  private constructor(
    private readonly room: string,
    private readonly file: FileSystemFileHandle,
    private readonly env: Env,
    private readonly release: () => void,
  ) {
    super()
    this.channel = new BroadcastChannel(lockName(room))
    this.channel.onmessage = () => this.wake()
  }

  /** Opens the store of a room. errors: `config.invalid` without OPFS, Web Locks or BroadcastChannel, or for an invalid name. */
  static async open(room: string, env: Env = systemEnv): Promise<OpfsStore> {
    if (!isText(room) || !/^[\w.-]{1,100}$/.test(room)) {
      throw new PeerError(
        'config.invalid',
        `opfs store: expected a room name of 1 to 100 letters, digits, ".", "_" and "-", got ${quoted(room)}. Choose another name.`,
      )
    }
    const { storage, locks } = (globalThis.navigator ?? {}) as Partial<Navigator>
    if (!storage?.getDirectory || !locks || !('BroadcastChannel' in globalThis)) {
      throw new PeerError(
        'config.invalid',
        'opfs store: this page is not secure, or its browser lacks the origin private file system or Web Locks. Use wss:// or broadcast:.',
      )
    }
    const folder = await storage.getDirectory()
    const file = await folder.getFileHandle(`tabring-store-${room}.json`, { create: true })
    const release = await locks.request(lockName(room), async () => {
      const users = `${lockName(room)} users`
      // Nobody else has it open, and under the lock nobody opens it now.
      const isEmpty = await locks.request(users, { ifAvailable: true }, (lock) => lock !== null)
      if (isEmpty) await write(file, new Map())
      return new Promise<() => void>((resolve, reject) => {
        locks
          .request(users, { mode: 'shared' }, () => new Promise<void>((letGo) => resolve(letGo)))
          .catch(reject)
      })
    })
    return new OpfsStore(room, file, env, release)
  }

  async set(key: string, value: string | Uint8Array): Promise<void> {
    const where = nameOf('set', key)
    const bytes = bytesOf(where, value)
    await this.change(where, (values) => values.set(key, bytes))
  }

  async get(key: string): Promise<Uint8Array> {
    return this.there(nameOf('get', key), [key], this.waitMs, (values) => values.get(key)!)
  }

  async add(key: string, amount: number): Promise<number> {
    const where = nameOf('add', key)
    checkAmount(where, amount)
    return this.change(where, (values) => addIn(where, values, key, amount))
  }

  async wait(keys: readonly string[], timeoutMs = this.waitMs): Promise<void> {
    checkTimeout('store.wait', timeoutMs)
    await this.there('store.wait', keysOf(keys), timeoutMs, () => undefined)
  }

  async compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array> {
    const where = nameOf('compareSet', key)
    const wanted = bytesOf(where, expected)
    const next = bytesOf(where, desired)
    return this.change(where, (values) => compareSetIn(values, key, wanted, next))
  }

  async deleteKey(key: string): Promise<boolean> {
    return this.change(nameOf('deleteKey', key), (values) => values.delete(key))
  }

  async numKeys(): Promise<number> {
    return (await this.read('store.numKeys')).size
  }

  close(): void {
    if (this.isClosed) return
    this.isClosed = true
    this.channel.close()
    this.release()
    this.wake()
  }

  /** Returns the result of `read` on the values, once all keys are there. */
  private async there<T>(
    where: string,
    keys: readonly string[],
    timeoutMs: number,
    read: (values: Values) => T,
  ): Promise<T> {
    const untilMs = timeoutMs === 0 ? Number.POSITIVE_INFINITY : this.env.now() + timeoutMs
    for (;;) {
      // Listening before looking, so that no change falls between.
      const change = this.nextChange(Math.min(checkAgainMs, untilMs - this.env.now()))
      try {
        const values = await this.read(where)
        const missing = keys.filter((key) => !values.has(key))
        if (missing.length === 0) return read(values)
        if (this.env.now() >= untilMs) throw lateError(where, missing, missing.length, timeoutMs)
        await change.came
      } finally {
        change.stop()
      }
    }
  }

  private nextChange(limitMs: number): { came: Promise<void>; stop: () => void } {
    let stop!: () => void
    const came = new Promise<void>((resolve) => {
      const cancel = this.env.after(limitMs, () => stop())
      stop = () => {
        cancel()
        this.changed.delete(stop)
        resolve()
      }
      this.changed.add(stop)
    })
    return { came, stop }
  }

  private wake(): void {
    for (const stop of [...this.changed]) stop()
  }

  private async read(where: string): Promise<Values> {
    this.checkOpen(where)
    return navigator.locks.request(lockName(this.room), { mode: 'shared' }, () => read(this.file))
  }

  private async change<T>(where: string, act: (values: Values) => T): Promise<T> {
    this.checkOpen(where)
    const result = await navigator.locks.request(lockName(this.room), async () => {
      const values = await read(this.file)
      const done = act(values)
      await write(this.file, values)
      return done
    })
    if (!this.isClosed) this.channel.postMessage(null)
    this.wake()
    return result as T
  }

  private checkOpen(where: string): void {
    if (!this.isClosed) return
    throw new PeerError('peer.lost', `${where}: this store has been closed. Open it again.`)
  }
}

const lockName = (room: string) => `tabring store ${room}`

async function read(file: FileSystemFileHandle): Promise<Values> {
  const text = await (await file.getFile()).text()
  if (text === '') return new Map()
  const entries = JSON.parse(text) as [string, string][]
  return new Map(entries.map(([key, value]) => [key, fromBase64Url(value)]))
}

/** The file changes as a whole, when the writing is closed: a tab that crashes before leaves the old one. */
async function write(file: FileSystemFileHandle, values: Values): Promise<void> {
  const writing = await file.createWritable()
  await writing.write(JSON.stringify([...values].map(([key, value]) => [key, toBase64Url(value)])))
  await writing.close()
}
