import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { limits, utf8Bytes } from '../room/messages.ts'
import { SignalError } from '../room/refusals.ts'
import type { StoreCall, StoreMessage } from '../room/store-calls.ts'
import type { StoreAnswer, StoredMessage } from '../room/store-messages.ts'
import { TokenBucket } from '../room/token-bucket.ts'

interface Pending {
  readonly where: string
  readonly timeoutMs: number
  readonly resolve: (answer: StoreAnswer) => void
  readonly reject: (error: PeerError) => void
  /** Sent, and the server has not said a word of it. */
  isUnderWay: boolean
  cancelTimer: () => void
}

/**
 * Calls of one client and the answers to them. Calls leave in the order in which they were made, although some are sealed first, and never
 * faster than the server takes them (`limits`): with at most `storeCallsAtOnce` under way, what the network holds back and
 * brings all at once fits the server's bucket too.
 */
export class StoreCalls {
  private readonly pending = new Map<number, Pending>()
  private readonly bucket: TokenBucket
  private lastId = 0
  private underWay = 0
  private outbox: Promise<void> = Promise.resolve()
  /** Continues the outbox, where it waits for an answer or a token. */
  private wake: () => void = () => undefined
  private cancelPause: () => void = () => undefined
  private over: PeerError | null = null

  constructor(
    private readonly env: Env,
    private readonly send: (message: StoreMessage) => void,
  ) {
    const burst = limits.storeCallBurst - 2 * limits.storeCallsAtOnce
    this.bucket = new TokenBucket(env, 0.9 * limits.storeCallsPerSec, burst)
  }

  /**
   * Sends a call and resolves with its answer. `timeoutMs` is how long the server waits before it answers at all, 0 for ever.
   *
   * errors: those of the refusal; `peer.lost`; `peer.timeout` from a server that answers nothing.
   */
  call(where: string, call: Promise<StoreCall>, timeoutMs?: number): Promise<StoreAnswer> {
    return new Promise((resolve, reject) => {
      if (this.over) {
        reject(this.lostError(where))
        return
      }
      const id = ++this.lastId
      const ms = timeoutMs === 0 ? 0 : (timeoutMs ?? 0) + limits.goneMs
      const entry: Pending = {
        where,
        timeoutMs: ms,
        resolve,
        reject,
        isUnderWay: false,
        cancelTimer: () => undefined,
      }
      this.pending.set(id, entry)
      this.outbox = this.outbox.then(() => this.post(id, entry, call))
    })
  }

  /** The server has answered. */
  stored({ id, answer }: StoredMessage): void {
    const entry = this.pending.get(id)
    if (!entry) return
    if (answer.kind === 'waiting') this.landed(entry)
    else this.settled(id)?.resolve(answer)
  }

  /** The server has refused a call. */
  refused(id: number, error: PeerError): void {
    this.settled(id)?.reject(error)
  }

  /** The connection has ended: so has all that is pending, and all that comes. */
  end(cause: PeerError): void {
    if (this.over) return
    this.over = cause
    for (const id of [...this.pending.keys()]) {
      const entry = this.settled(id)!
      entry.reject(this.lostError(entry.where))
    }
    this.cancelPause()
    this.wake()
  }

  private async post(id: number, entry: Pending, call: Promise<StoreCall>): Promise<void> {
    let message: StoreMessage
    try {
      message = { type: 'store', id, call: await call }
      checkSize(message)
    } catch (error) {
      this.settled(id)?.reject(error as PeerError)
      return
    }
    while (!this.over && this.underWay >= limits.storeCallsAtOnce) await this.pause()
    while (!this.over && !this.bucket.take()) await this.pause(this.bucket.waitMs)
    if (this.over) return // rejected by `end`
    this.underWay++
    entry.isUnderWay = true
    if (entry.timeoutMs > 0) {
      entry.cancelTimer = this.env.after(entry.timeoutMs, () => {
        this.settled(id)?.reject(
          new PeerError(
            'peer.timeout',
            `${entry.where}: no answer from the server within ${entry.timeoutMs} ms. Load the same version of the page on every rank and on the server.`,
          ),
        )
      })
    }
    this.send(message)
  }

  /** Until `wake` is called, or `ms` are over. */
  private pause(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      this.wake = resolve
      if (ms !== undefined) this.cancelPause = this.env.after(ms, resolve)
    })
  }

  private settled(id: number): Pending | undefined {
    const entry = this.pending.get(id)
    if (!entry) return undefined
    this.pending.delete(id)
    entry.cancelTimer()
    this.landed(entry)
    return entry
  }

  private landed(entry: Pending): void {
    if (!entry.isUnderWay) return
    entry.isUnderWay = false
    this.underWay--
    this.wake()
  }

  private lostError(where: string): PeerError {
    const { message } = this.over!
    return new PeerError('peer.lost', `${where}: ${message}`, { cause: this.over! })
  }
}

/** Refused here already: the server ends a connection that sends more. */
function checkSize(message: StoreMessage): void {
  const sizeBytes = utf8Bytes(JSON.stringify(message))
  if (sizeBytes <= limits.messageBytes) return
  const text = `store: expected a call of at most ${limits.messageBytes} bytes, including its keys, got ${sizeBytes}. Wait for fewer keys at once.`
  throw new SignalError('too-large', text)
}
