import { type Env, systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { checkArgument, checkOptions } from '../../util/options.ts'
import { bytesOf, checkAmount, checkTimeout, keysOf, lateError, nameOf } from './check-arguments.ts'
import { KeyTable } from './key-table.ts'
import { defaultTimeoutMs, type Store } from './store.ts'
import { addIn, compareSetIn } from './table-rules.ts'
import { TimedStore } from './timed-store.ts'

/** Options of `HashStore`. */
export interface HashStoreOptions {
  /** How long `get` and `wait` wait; 0 means no limit. Default 300,000. units: ms. */
  timeoutMs?: number
  /** The clock. Default: the system's. */
  env?: Env
}

/** A store in the memory of this thread, for ranks that share it: torch.distributed.HashStore. */
export class HashStore extends TimedStore implements Store {
  private table: KeyTable<Uint8Array>
  private owner: HashStore = this
  /** Ends what waits here. */
  private readonly waits = new Set<() => void>()
  private isClosed = false

  constructor(options: HashStoreOptions = {}) {
    super()
    const { timeoutMs = defaultTimeoutMs, env = systemEnv } = checkOptions('HashStore', options, {
      timeoutMs: true,
      env: true,
    })
    checkArgument('HashStore', 'env', env, isRecord(env) && 'after' in env, 'an Env')
    this.table = new KeyTable(env)
    this.timeoutMs = timeoutMs
  }

  async set(key: string, value: string | Uint8Array): Promise<void> {
    const where = this.entered('set', key)
    this.table.set(key, bytesOf(where, value))
  }

  async get(key: string): Promise<Uint8Array> {
    const where = this.entered('get', key)
    return this.there(where, [key], this.waitMs, () => this.table.get(key)!.slice())
  }

  async add(key: string, amount: number): Promise<number> {
    const where = this.entered('add', key)
    checkAmount(where, amount)
    return addIn(where, this.table, key, amount)
  }

  async wait(keys: readonly string[], timeoutMs = this.waitMs): Promise<void> {
    this.checkOpen('store.wait')
    checkTimeout('store.wait', timeoutMs)
    await this.there('store.wait', keysOf(keys), timeoutMs, () => undefined)
  }

  async compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array> {
    const where = this.entered('compareSet', key)
    const wanted = bytesOf(where, expected)
    const next = bytesOf(where, desired)
    return compareSetIn(this.table, key, wanted, next).slice()
  }

  async deleteKey(key: string): Promise<boolean> {
    this.entered('deleteKey', key)
    return this.table.delete(key)
  }

  async numKeys(): Promise<number> {
    this.checkOpen('store.numKeys')
    return this.table.size
  }

  /** Returns another view of the same keys, with its own timeout. Closing it ends only its own waits. */
  share(): HashStore {
    const store = new HashStore({ timeoutMs: this.waitMs })
    store.table = this.table
    store.owner = this.owner
    return store
  }

  close(): void {
    this.isClosed = true
    if (this.owner === this) this.table.close()
    else for (const end of this.waits) end()
  }

  /** Returns the result of `read` at the moment at which all keys are there. */
  private there<T>(where: string, keys: string[], ms: number, read: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const end = () => {
        leave()
        reject(closedError(where))
      }
      this.waits.add(end)
      const leave = this.table.wait(keys, ms, (how) => {
        this.waits.delete(end)
        if (how.kind === 'there') resolve(read())
        else if (how.kind === 'closed') reject(closedError(where))
        else reject(lateError(where, how.missing, how.missing.length, ms))
      })
    })
  }

  private entered(method: string, key: string): string {
    const where = nameOf(method, key)
    this.checkOpen(where)
    return where
  }

  private checkOpen(where: string): void {
    if (this.isClosed || this.owner.isClosed) throw closedError(where)
  }
}

function closedError(where: string): PeerError {
  return new PeerError('peer.lost', `${where}: this store has been closed. Create another.`)
}
