import { FrameType, fieldOffset } from '../../../src/peer/link/wire.ts'
import type { Draw } from './draw.ts'

/** What happens to one message, or from it on to its link. */
const linkKinds = [
  'drop',
  'duplicate',
  'truncate',
  'delay',
  'reorder',
  'corrupt',
  'wrong-epoch',
  'slow',
  'close',
  'one-way',
  'freeze',
] as const
/** What happens to one rank, or between two halves of them. */
const rankKinds = ['crash', 'pause', 'jump', 'partition', 'abort', 'leave', 'odd-call'] as const
export const faultKinds = [...linkKinds, ...rankKinds] as const
export type FaultKindName = (typeof faultKinds)[number]

/** When: at the nth message of that kind, on the link or of the rank that is meant. */
export const faultPhases = {
  joining: FrameType.hello,
  start: FrameType.start,
  data: FrameType.data,
  credit: FrameType.credit,
  ping: FrameType.ping,
  aborting: FrameType.abort,
  leaving: FrameType.bye,
  barrier: undefined,
} as const
export type FaultPhase = keyof typeof faultPhases

export interface FaultPlan {
  readonly kind: FaultKindName
  readonly phase: FaultPhase
  readonly nth: number
  /** Sender of the message that gets the fault, or the rank that has it. */
  readonly rank: number
  /** Who receives that message. */
  readonly peer: number
  /** A delay, a pause, a jump. */
  readonly ms: number
  readonly bit: number
  /** Which phase's operation an odd call is made in. */
  readonly program: number
}

/** Returns whether it is a fault of one link, and not of a rank or the world. */
export const isOnLink = ({ kind }: FaultPlan): boolean =>
  (linkKinds as readonly string[]).includes(kind)

const barrierKind = 5

/** Whether `message` belongs to a phase. */
export function isOfPhase(phase: FaultPhase, message: Uint8Array): boolean {
  const type = message[fieldOffset.type]
  // START may travel in the first data.
  const hasStart = type === FrameType.data && message[fieldOffset.begun]! > 0
  if (phase === 'start') return hasStart || type === FrameType.start
  if (phase !== 'barrier') return type === faultPhases[phase]
  const isCollective = type === FrameType.start || type === FrameType.data
  return isCollective && (message[fieldOffset.kind]! & 15) === barrierKind
}

export function drawFault(draw: Draw, size: number, isMesh: boolean, programs: number): FaultPlan {
  const kind = draw.pick(faultKinds)
  const phase = draw.pick([
    'joining',
    'start',
    'start',
    'data',
    'data',
    'data',
    'credit',
    'ping',
    'aborting',
    'leaving',
    'barrier',
  ] as const)
  const rank = draw.whole(0, size - 1)
  const distance = isMesh ? draw.whole(1, size - 1) : draw.pick([1, size - 1])
  return {
    kind,
    phase,
    nth: phase === 'joining' || phase === 'aborting' || phase === 'leaving' ? 1 : draw.whole(1, 5),
    rank,
    peer: (rank + distance) % size,
    ms: kind === 'slow' ? draw.pick([30, 300, 1200]) : draw.pick([50, 700, 4000, 30_000]),
    bit: draw.whole(0, 2 ** 30),
    program: draw.whole(0, programs - 1),
  }
}
