import type { Env } from '../../util/env.ts'

/** How a wait ended: the keys are there, some came too late, or the table was closed. */
export type WaitEnd =
  | { kind: 'there' }
  | { kind: 'late'; missing: readonly string[] }
  | { kind: 'closed' }

interface Waiter {
  readonly keys: readonly string[]
  readonly missing: Set<string>
  end(how: WaitEnd): void
}

/**
 * Keys, their values, and who waits for them: what every store here is made of, in a tab's memory and on the server.
 *
 * order: waiters are called in the order of asking, at once, inside the call that brought the last key.
 */
export class KeyTable<V> {
  private readonly values = new Map<string, V>()
  private readonly waiters = new Map<string, Set<Waiter>>()

  constructor(private readonly env: Env) {}

  get size(): number {
    return this.values.size
  }

  get(key: string): V | undefined {
    return this.values.get(key)
  }

  set(key: string, value: V): void {
    const isNew = !this.values.has(key)
    this.values.set(key, value)
    if (!isNew) return
    for (const waiter of [...(this.waiters.get(key) ?? [])]) {
      // A waiter that was called may have deleted the key, or ended another's wait.
      if (!this.values.has(key)) return
      if (!this.waiters.get(key)?.has(waiter)) continue
      waiter.missing.delete(key)
      if (waiter.missing.size === 0) waiter.end({ kind: 'there' })
    }
  }

  /** Returns whether the key was there. */
  delete(key: string): boolean {
    const wasThere = this.values.delete(key)
    if (wasThere) for (const waiter of this.waiters.get(key) ?? []) waiter.missing.add(key)
    return wasThere
  }

  /**
   * Calls `onEnd` once, at once where all keys are there. Returns a function that ends the wait without a word.
   *
   * units: ms; 0 waits for ever.
   */
  wait(keys: readonly string[], timeoutMs: number, onEnd: (how: WaitEnd) => void): () => void {
    const missing = new Set(keys.filter((key) => !this.values.has(key)))
    if (missing.size === 0) {
      onEnd({ kind: 'there' })
      return () => undefined
    }
    const leave = () => {
      cancelTimer()
      for (const key of keys) {
        const set = this.waiters.get(key)
        set?.delete(waiter)
        if (set?.size === 0) this.waiters.delete(key)
      }
    }
    const waiter: Waiter = {
      keys,
      missing,
      end(how) {
        leave()
        onEnd(how)
      },
    }
    const cancelTimer =
      timeoutMs === 0
        ? () => undefined
        : this.env.after(timeoutMs, () => waiter.end({ kind: 'late', missing: [...missing] }))
    // Also under those that are there: one that is deleted meanwhile is waited for again.
    for (const key of keys) {
      const set = this.waiters.get(key)
      if (set) set.add(waiter)
      else this.waiters.set(key, new Set([waiter]))
    }
    return leave
  }

  /** Ends every wait and forgets every key. */
  close(): void {
    const waiters = new Set([...this.waiters.values()].flatMap((set) => [...set]))
    this.values.clear()
    for (const waiter of waiters) waiter.end({ kind: 'closed' })
  }
}
