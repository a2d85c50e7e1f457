import type { Env } from '../../util/env.ts'
import { TokenBucket } from '../room/token-bucket.ts'
import { keepNewest } from './keep-newest.ts'

/** A token bucket for each address, of the last `max` addresses. */
export class AddressBuckets {
  readonly #buckets = new Map<string, TokenBucket>()

  constructor(
    private readonly env: Env,
    private readonly max: number,
    private readonly perSec: number,
    private readonly burst: number,
  ) {}

  of(address: string): TokenBucket {
    const { env, perSec, burst, max } = this
    const bucket = this.#buckets.get(address) ?? new TokenBucket(env, perSec, burst)
    keepNewest(this.#buckets, address, bucket, max)
    return bucket
  }
}
