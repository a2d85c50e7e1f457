import type { DataMessage, Since } from './recorder.ts'
import type { Step } from './steps.ts'
import type { HeldRun, Story } from './story.ts'

/** Where a message that is under way is. */
export interface UnderWay {
  readonly message: DataMessage
  /** waiting: behind others, at the sender. travelling: between the two. lost: it went, and will go again. here: behind a lost one that must come first. */
  readonly is: 'waiting' | 'travelling' | 'lost' | 'here'
  /** From the sender to the receiver, 0 to 1; for a lost one where it was lost. */
  readonly share: number
}

/** A run as it was at one time. */
export interface Moment {
  readonly ms: number
  readonly underWay: readonly UnderWay[]
  /** What arrived last. */
  readonly arrivals: readonly DataMessage[]
  /** The one that the ranks that are last are in; undefined once all data has arrived. */
  readonly step: Step | undefined
  /** The same in words. */
  readonly phase: string
  readonly dataMessages: number
  readonly controlMessages: number
  /** Times that any message with data had to be sent again. */
  readonly resent: number
  /** Of the arrays. By rank that sends, and the rank that receives. */
  readonly bytes: readonly (readonly number[])[]
}

export function momentOf(story: Story, ms: number): Moment {
  const { messages, control, settings, steps, endMs } = story
  const bytes = Array.from({ length: settings.ranks }, () =>
    new Array<number>(settings.ranks).fill(0),
  )
  const underWay: UnderWay[] = []
  let arrivals: DataMessage[] = []
  let dataMessages = 0
  let resent = 0
  for (const message of messages) {
    const { sentMs, arrivedMs, from, to, payloadBytes, attempts } = message
    if (sentMs > ms) continue
    dataMessages += 1
    bytes[from][to] += payloadBytes
    for (let i = 1; i < attempts.length; i++) if (attempts[i].leavesMs <= ms) resent += 1
    if (arrivedMs > ms) {
      underWay.push(whereIs(message, ms, settings.latencyMs))
      continue
    }
    const lastMs = arrivals[0]?.arrivedMs ?? 0
    if (arrivedMs > lastMs) arrivals = []
    if (arrivedMs >= lastMs) arrivals.push(message)
  }
  const step = steps.find((one) => one.endMs > ms)
  return {
    ...{ ms, underWay, arrivals, step, dataMessages, resent, bytes },
    phase: ms >= endMs ? (story.failure ? 'Failed' : 'Finished') : phaseOf(story, step),
    controlMessages: countUpTo(control, ms),
  }
}

function whereIs(message: DataMessage, ms: number, latencyMs: number): UnderWay {
  const { attempts, arrivedMs } = message
  const begun = attempts.filter(({ leavesMs }) => leavesMs <= ms).at(-1)
  if (!begun) return { message, is: 'waiting', share: 0 }
  const last = attempts.at(-1)!
  // What the last attempt took when nothing held it up; those that were lost would have taken as long.
  const wayMs = begun.isLost
    ? begun.leftMs - begun.leavesMs + latencyMs
    : Math.min(arrivedMs - last.leavesMs, begun.leftMs - begun.leavesMs + latencyMs)
  const share = wayMs > 0 ? Math.min(1, (ms - begun.leavesMs) / wayMs) : 1
  if (begun.isLost)
    return { message, is: share < 0.5 ? 'travelling' : 'lost', share: Math.min(0.5, share) }
  return { message, is: share < 1 ? 'travelling' : 'here', share }
}

function phaseOf({ algorithm }: Story, step: Step | undefined): string {
  if (!step) return 'All data has arrived; the calls return'
  if (algorithm === 'oneShot') return 'One shot: everything to everyone'
  const half = step.into === 'sum' ? 'Reduce-scatter' : 'All-gather'
  return `${half}, step ${step.number} of ${step.of}`
}

function countUpTo(sorted: readonly { sentMs: number }[], ms: number): number {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (sorted[middle].sentMs <= ms) low = middle + 1
    else high = middle
  }
  return low
}

/** What was seen last at a time; undefined where nothing ever was. */
export function seenAt<Seen>(history: readonly Since<Seen>[], ms: number): Seen | undefined {
  return history.findLast((since) => since.ms <= ms)?.seen
}

/** What an empty chunk holds. */
export const nothingHeld: readonly HeldRun[] = []

/** The times at which something arrives, from 0 to the end, in order: where one steps to. */
export function stopsOf({ messages, endMs }: Story): number[] {
  const times = new Set([0, endMs])
  for (const { arrivedMs } of messages) if (Number.isFinite(arrivedMs)) times.add(arrivedMs)
  return [...times].sort((a, b) => a - b)
}
