import { type ChunkRange, chunksOf, type Plan } from '../../src/peer/algorithms/plan.ts'
import { planCollective } from '../../src/peer/algorithms/plan-collective.ts'
import {
  decodeHeader,
  emptyHeader,
  FrameType,
  fingerprintBytes,
  headerBytes,
} from '../../src/peer/link/wire.ts'
import { algorithmOf, type Watcher } from './demo.ts'
import type { Attempt, Travel } from './model-link.ts'
import { machinesOf, type RingSettings } from './settings.ts'

/** A message with data of the arrays. Times count from the launch. */
export interface DataMessage {
  readonly from: number
  readonly to: number
  readonly chunk: number
  /** Elements. */
  readonly range: ChunkRange
  /** Its place in the longest chain of messages that wait for one another, from 1. */
  readonly hop: number
  /** sum: it is added to what the receiver has. copy: it takes its place. */
  readonly into: 'sum' | 'copy'
  readonly payloadBytes: number
  /** With header. */
  readonly bytes: number
  readonly sentMs: number
  readonly attempts: readonly Attempt[]
  /** Infinity for one that never did. */
  arrivedMs: number
}

/** Any other message: START, CREDIT, PING and the like. */
export interface ControlMessage {
  readonly sentMs: number
  readonly bytes: number
}

/** What something was from a time on. */
export interface Since<Seen> {
  readonly ms: number
  readonly seen: Seen
}

/** Every rank's part in the all-reduce: the plans that its group makes too. */
export function plansOf(settings: RingSettings): Plan[] {
  const { ranks: size, length } = settings
  const given = { size, length, root: 0, alignment: 1, machines: machinesOf(settings) }
  return Array.from({ length: size }, (_, rank) =>
    planCollective('allReduce', algorithmOf(settings), { ...given, rank }),
  )
}

/** By rank and place of a send in its plan: how many messages, this one included, go one after the other until it has come. */
export function hopsOf(plans: readonly Plan[]): number[][] {
  const hops = plans.map(({ sends }) => sends.map(() => 0))
  const ofReceive = (rank: number, index: number): number => {
    const { peer, step } = plans[rank].receives[index]
    return ofSend(
      peer,
      plans[peer].sends.findIndex((send) => send.peer === rank && send.step === step),
    )
  }
  const ofSend = (rank: number, index: number): number => {
    if (hops[rank][index] > 0) return hops[rank][index]
    const { after } = plans[rank].sends[index]
    const before = !after
      ? []
      : 'receive' in after
        ? [after.receive]
        : plans[rank].folds[after.fold].sources.filter((source) => source !== 'own')
    hops[rank][index] = 1 + Math.max(0, ...before.map((receive) => ofReceive(rank, receive)))
    return hops[rank][index]
  }
  for (const [rank, { sends }] of plans.entries()) for (const at of sends.keys()) ofSend(rank, at)
  return hops
}

/** Writes down a run: its messages, and by rank and chunk what `read` saw of the array at the launch and behind each message. */
export class Recorder<A extends Float32Array | Uint32Array, Seen> implements Watcher<A> {
  readonly data: DataMessage[] = []
  readonly control: ControlMessage[] = []
  readonly held: Since<Seen>[][][]
  private readonly plans: readonly Plan[]
  private readonly hops: readonly number[][]
  private readonly chunks: readonly ChunkRange[]
  private readonly known = new Map<Travel, DataMessage>()
  private readonly header = emptyHeader()
  private buffers: readonly A[] = []
  private startMs = 0

  /** `change` may turn bits of a message before it goes. */
  constructor(
    { ranks, length }: RingSettings,
    plans: readonly Plan[],
    private readonly read: (part: A) => Seen,
    private readonly change: (message: DataMessage, bytes: Uint8Array) => void = () => undefined,
  ) {
    this.plans = plans
    this.hops = hopsOf(plans)
    this.chunks = chunksOf(length, ranks)
    this.held = plans.map(() => this.chunks.map(() => []))
  }

  onlaunch(buffers: readonly A[], nowMs: number): void {
    this.buffers = buffers
    this.startMs = nowMs
    for (const rank of buffers.keys()) this.see(rank, { start: 0, end: buffers[rank].length }, 0)
  }

  onsent(travel: Travel): void {
    const { header, startMs } = this
    decodeHeader(travel.bytes, header)
    const sentMs = travel.sentMs - startMs
    const bytes = travel.bytes.length
    if (header.type !== FrameType.data) {
      this.control.push({ sentMs, bytes })
      return
    }
    const { from, to } = travel
    const { step, length, begun, offset } = header
    const send = this.plans[from].sends.findIndex((one) => one.peer === to && one.step === step)
    const { chunk, range } = this.plans[from].sends[send]
    const receive = this.plans[to].receives.find((one) => one.peer === from && one.step === step)!
    const payloadBytes = length - (begun > 0 ? fingerprintBytes : 0)
    const start = range.start + offset / 4
    const message: DataMessage = {
      ...{ from, to, chunk, hop: this.hops[from][send], payloadBytes, bytes, sentMs },
      range: { start, end: start + payloadBytes / 4 },
      into: receive.into === 'copy' ? 'copy' : 'sum',
      attempts: travel.attempts.map(({ leavesMs, leftMs, isLost }) => ({
        ...{ leavesMs: leavesMs - startMs, leftMs: leftMs - startMs, isLost },
      })),
      arrivedMs: Number.POSITIVE_INFINITY,
    }
    this.known.set(travel, message)
    this.data.push(message)
    this.change(message, travel.bytes.subarray(headerBytes + length - payloadBytes))
  }

  onarrived(travel: Travel): void {
    const message = this.known.get(travel)
    if (!message) return
    this.known.delete(travel)
    message.arrivedMs = travel.arrivedMs - this.startMs
    this.see(message.to, message.range, message.arrivedMs)
  }

  /** Looks at the chunks that a range touches. */
  private see(rank: number, { start, end }: ChunkRange, ms: number): void {
    for (const [chunk, range] of this.chunks.entries())
      if (range.start < end && start < range.end) {
        const seen = this.read(this.buffers[rank].subarray(range.start, range.end) as A)
        this.held[rank][chunk].push({ ms, seen })
      }
  }
}
