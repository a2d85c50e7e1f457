/**
 * A key-value store that all ranks share, through which they find each other: torch.distributed.Store.
 *
 * Values are bytes; strings are stored as UTF-8.
 */
export interface Store {
  /** Default timeout of `get` and `wait`; 0 means no limit. Default 300,000, as in torch. units: ms. */
  timeoutMs: number
  /** Sets the value of a key, replacing any earlier value. */
  set(key: string, value: string | Uint8Array): Promise<void>
  /** Returns the value of a key; waits until the key exists. errors: `peer.timeout`, naming the key. */
  get(key: string): Promise<Uint8Array>
  /**
   * Adds to a counter, which starts at 0, and returns the new value.
   *
   * A counter is decimal text, as in torch: `get` returns the text, and `add` accepts any text that begins with a whole number.
   * errors: `config.invalid` for another value, or a sum that a number cannot hold exactly.
   */
  add(key: string, amount: number): Promise<number>
  /** Resolves when all keys exist at once. errors: `peer.timeout`, naming those that do not. */
  wait(keys: readonly string[], timeoutMs?: number): Promise<void>
  /**
   * Sets `desired` if the current value is `expected`, or if the key does not exist and `expected` is empty. Returns the value afterwards.
   *
   * For a missing key and a non-empty `expected` it returns `expected`, as torch does.
   */
  compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array>
  /** Deletes a key. Resolves to whether it existed. */
  deleteKey(key: string): Promise<boolean>
  /** Returns the number of keys. */
  numKeys(): Promise<number>
  /** Closes the store: pending and later calls reject with `peer.lost`. */
  close(): void
}

/** torch's: five minutes. */
export const defaultTimeoutMs = 300_000
