/**
 * The collectives that a rank knows of and that have not ended, and whom each waits for.
 *
 * Map: CollectiveSpan - Entry: what was heard of one - Run: its launch here - Entries: all of them.
 */
import { PeerError } from '../util/errors.ts'
import { type Announcement, disagreement, keyOf, nameOf, operationOf } from './announcement.ts'
import type { RingCollective } from './ring.ts'

/** When one collective's parts happened on this rank; `Env.now()` milliseconds, NaN for what never happened. */
export interface CollectiveSpan {
  operation: string
  sequence: number
  bucket: number
  payloadBytes: number
  launchedMs: number
  firstSentMs: number
  lastReceivedMs: number
  endedMs: number
}

/** A collective as this rank knows it: announced by a neighbour, launched here, or both. */
export interface Entry {
  readonly key: number
  readonly sequence: number
  readonly bucket: number
  fromPrevious?: Announcement
  fromNext?: Announcement
  /** Ranks before this one, one after the other, that are known to have begun it. */
  begunBefore: number
  /** How many, this one included, the next rank has been told of. */
  begunTold: number
  /** Eager data that came before the launch here, in order of arrival. */
  held: HeldData[]
  run?: Run
}

export interface HeldData {
  step: number
  offset: number
  length: number
  message: Uint8Array<ArrayBuffer>
}

export interface RunOptions {
  entry: Entry
  own: Announcement
  ring: RingCollective
  payloadBytes: number
  deadlineMs: number
  launchedMs: number
  /** Called once, when all ranks are known to have begun it. */
  onmet?: (() => void) | undefined
}

/** A collective that was launched here. */
export class Run {
  readonly entry: Entry
  /** As errors show it: `allReduce #42 bucket 0`. */
  readonly name: string
  readonly own: Announcement
  readonly ring: RingCollective
  readonly deadlineMs: number
  readonly span: CollectiveSpan
  /** The caller's. */
  readonly promise: Promise<void>
  /** DATA bytes sent to the next rank before its START. */
  eagerBytes = 0
  isOver = false
  private onmet: (() => void) | undefined
  private settle!: { resolve: () => void; reject: (error: PeerError) => void }

  constructor(options: RunOptions) {
    const { entry, own, ring, payloadBytes, deadlineMs, launchedMs, onmet } = options
    const operation = operationOf(own.kind)
    const { sequence, bucket } = entry
    this.entry = entry
    this.name = nameOf(operation, sequence, bucket)
    this.own = own
    this.ring = ring
    this.deadlineMs = deadlineMs
    this.onmet = onmet
    this.span = {
      operation,
      sequence,
      bucket,
      payloadBytes,
      launchedMs,
      firstSentMs: Number.NaN,
      lastReceivedMs: Number.NaN,
      endedMs: Number.NaN,
    }
    this.promise = new Promise((resolve, reject) => {
      this.settle = { resolve, reject }
    })
    // A failure is reported through `failed` and `onfailure`; a bucket that nobody awaits yet is no unhandled rejection.
    this.promise.catch(() => undefined)
  }

  get launchedMs(): number {
    return this.span.launchedMs
  }

  /** For its data, or to compare its START. */
  get needsPrevious(): boolean {
    return this.ring.isReceiving || !this.entry.fromPrevious
  }

  /** To take our data, or to compare its START. */
  get needsNext(): boolean {
    return this.ring.isSending || !this.entry.fromNext
  }

  /** All bytes in and out, and compared with both neighbours. */
  get isComplete(): boolean {
    return !this.needsPrevious && !this.needsNext
  }

  /** Compares the neighbours' STARTs that are there. errors: `peer.mismatch` when one differs from ours; names both sides. */
  compare(): void {
    const { rank, previousRank, nextRank } = this.ring
    for (const [theirRank, theirs] of [
      [previousRank, this.entry.fromPrevious],
      [nextRank, this.entry.fromNext],
    ] as const) {
      const text = theirs && disagreement(rank, this.own, theirRank, theirs)
      if (text) throw new PeerError('peer.mismatch', `${this.name}: ${text}`)
    }
    const { fromPrevious, fromNext, begunBefore } = this.entry
    if (!fromPrevious || !fromNext || begunBefore < this.ring.size - 2) return
    this.onmet?.()
    this.onmet = undefined
  }

  /** Whom a launch that makes no progress waits for, and for what, in words. */
  get awaited(): { isPrevious: boolean; text: string; hasStarted: boolean } {
    const { ring, entry } = this
    if (ring.isReceiving || (!ring.isSending && !entry.fromPrevious)) {
      const rank = `rank ${ring.previousRank}`
      const text = ring.isReceiving ? `for chunk ${ring.awaitedChunk} from ${rank}` : `for ${rank}`
      return { isPrevious: true, text, hasStarted: !!entry.fromPrevious }
    }
    const rank = `rank ${ring.nextRank}`
    const text = ring.isSending ? `for ${rank} to take chunk ${ring.unsentChunk}` : `for ${rank}`
    return { isPrevious: false, text, hasStarted: !!entry.fromNext }
  }

  resolve(): void {
    this.isOver = true
    this.settle.resolve()
  }

  reject(error: PeerError): void {
    this.isOver = true
    this.settle.reject(error)
  }
}

export class Entries {
  private readonly byKey = new Map<number, Entry>()
  private launched: Run[] = []

  /** Launched and not ended, in launch order. When one ends this is another array: a loop may go on over the old one. */
  get active(): readonly Run[] {
    return this.launched
  }

  /** How many neighbours have announced that were not launched here. */
  get announced(): number {
    return this.byKey.size - this.launched.length
  }

  find(kind: number, sequence: number, bucket: number): Entry | undefined {
    return this.byKey.get(keyOf(kind, sequence, bucket))
  }

  /** The entry, made if it is not there. */
  open(kind: number, sequence: number, bucket: number): Entry {
    const key = keyOf(kind, sequence, bucket)
    let entry = this.byKey.get(key)
    if (!entry) {
      entry = { key, sequence, bucket, begunBefore: 0, begunTold: 0, held: [] }
      this.byKey.set(key, entry)
    }
    return entry
  }

  launch(run: Run): void {
    run.entry.run = run
    this.launched.push(run)
  }

  end(run: Run): void {
    this.launched = this.launched.filter((other) => other !== run)
    this.byKey.delete(run.entry.key)
  }

  /** Forgets everything and returns what was active. */
  clear(): Run[] {
    const active = this.launched
    this.launched = []
    this.byKey.clear()
    return active
  }
}
