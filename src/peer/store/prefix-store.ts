import { checkArgument, checkText } from '../../util/options.ts'
import { keysOf, nameOf } from './check-arguments.ts'
import type { Store } from './store.ts'

/**
 * A view of another store that adds `prefix/` to every key: torch.distributed.PrefixStore. Users with different prefixes do not clash.
 *
 * Errors, the timeout and `numKeys` are those of the other store, with all of its keys, as in torch.
 */
export class PrefixStore implements Store {
  private readonly prefix: string
  private readonly store: Store

  constructor(prefix: string, store: Store) {
    checkText('PrefixStore', 'prefix', prefix)
    const isStore = typeof store?.compareSet === 'function'
    checkArgument('PrefixStore', 'store', store, isStore, 'a store')
    this.prefix = prefix
    this.store = store
  }

  get timeoutMs(): number {
    return this.store.timeoutMs
  }

  set timeoutMs(value: number) {
    this.store.timeoutMs = value
  }

  async set(key: string, value: string | Uint8Array): Promise<void> {
    await this.store.set(this.whole('set', key), value)
  }

  async get(key: string): Promise<Uint8Array> {
    return this.store.get(this.whole('get', key))
  }

  async add(key: string, amount: number): Promise<number> {
    return this.store.add(this.whole('add', key), amount)
  }

  async wait(keys: readonly string[], timeoutMs?: number): Promise<void> {
    const whole = keysOf(keys).map((key) => this.whole('wait', key))
    await this.store.wait(whole, timeoutMs)
  }

  async compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array> {
    return this.store.compareSet(this.whole('compareSet', key), expected, desired)
  }

  async deleteKey(key: string): Promise<boolean> {
    return this.store.deleteKey(this.whole('deleteKey', key))
  }

  async numKeys(): Promise<number> {
    return this.store.numKeys()
  }

  /** Does nothing: the other store stays open, and its owner closes it. */
  close(): void {
    return
  }

  private whole(method: string, key: string): string {
    nameOf(method, key)
    return `${this.prefix}/${key}`
  }
}
