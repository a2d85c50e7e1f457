/**
 * A key-value store that all ranks reach, by which they find one another: torch.distributed.Store.
 *
 * Values are bytes; text goes in as UTF-8.
 */
export interface Store {
  /** How long `get` and `wait` wait, unless told; 0 is for ever. Default 300,000, as torch's. */
  timeoutMs: number
  /** Puts a value under a key, in the place of what is there. */
  set(key: string, value: string | Uint8Array): Promise<void>
  /** The value of a key; waits until it is there. errors: `peer.timeout`, naming the key. */
  get(key: string): Promise<Uint8Array>
  /**
   * Adds to a counter, which begins at 0, and returns the new value. A counter is decimal text, as torch keeps it: `get` gives
   * the text, and a text that begins with a whole number may be added to.
   *
   * errors: `config.invalid` for a value that is none, or a sum that numbers do not hold exactly.
   */
  add(key: string, amount: number): Promise<number>
  /** Resolves when all keys are there at once. errors: `peer.timeout`, naming those that are not. */
  wait(keys: readonly string[], timeoutMs?: number): Promise<void>
  /**
   * Puts `desired` where the value is `expected` or, for an empty `expected`, where there is none. Returns what is there
   * afterwards; for a key that is not there and an `expected` that is not empty, `expected`: torch tells no difference either.
   */
  compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array>
  /** Takes a key away; resolves to whether it was there. */
  deleteKey(key: string): Promise<boolean>
  /** How many keys are there. */
  numKeys(): Promise<number>
  /** Ends the use of the store: what waits, and what is asked later, rejects with `peer.lost`. */
  close(): void
}

/** torch's: five minutes. */
export const defaultTimeoutMs = 300_000
