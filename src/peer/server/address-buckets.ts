import type { Env } from '../../util/env.ts'
import { TokenBucket } from '../room/token-bucket.ts'

/** Below this number of addresses none is forgotten. */
const leastKept = 1024

/** A token bucket for each address. */
export class AddressBuckets {
  readonly #buckets = new Map<string, TokenBucket>()
  #mostKept = leastKept

  constructor(
    private readonly env: Env,
    private readonly perSec: number,
    private readonly burst: number,
  ) {}

  of(address: string): TokenBucket {
    const known = this.#buckets.get(address)
    if (known) return known
    if (this.#buckets.size >= this.#mostKept) this.#forget()
    const bucket = new TokenBucket(this.env, this.perSec, this.burst)
    this.#buckets.set(address, bucket)
    return bucket
  }

  /** A full bucket is as a new one. */
  #forget(): void {
    for (const [address, bucket] of this.#buckets) if (bucket.isFull) this.#buckets.delete(address)
    this.#mostKept = Math.max(leastKept, 2 * this.#buckets.size)
  }
}
