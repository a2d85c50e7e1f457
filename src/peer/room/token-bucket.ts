import type { Env } from '../../util/env.ts'

/** How many messages or bytes may come: `burst` at once, and `perSec` over time. */
export class TokenBucket {
  private tokens: number
  private atMs: number

  constructor(
    private readonly env: Env,
    private readonly perSec: number,
    private readonly burst: number,
  ) {
    this.tokens = burst
    this.atMs = env.now()
  }

  /** Takes `count` tokens; false, and none, when there are fewer. */
  take(count = 1): boolean {
    this.fill()
    if (this.tokens < count) return false
    this.tokens -= count
    return true
  }

  /** Takes `count` tokens that have been used already: where there are fewer, the next one comes later. */
  spend(count: number): void {
    this.fill()
    this.tokens -= count
  }

  /** Until there is a token again; 0 when there is one. units: ms, whole. */
  get waitMs(): number {
    this.fill()
    return this.tokens >= 1 ? 0 : Math.ceil(((1 - this.tokens) / this.perSec) * 1000)
  }

  private fill(): void {
    const now = this.env.now()
    const earned = ((now - this.atMs) / 1000) * this.perSec
    this.tokens = Math.min(this.burst, this.tokens + earned)
    this.atMs = now
  }
}
