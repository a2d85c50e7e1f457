import { meshLimit } from '../../../../src/peer/room/edges.ts'
import { Draw } from '../draw.ts'
import type { LiarPlan } from './liar.ts'

/** What befalls the next message that a member sends to another machine in that moment. */
export const messageFaults = [
  'slow',
  'drop',
  'duplicate',
  'reorder',
  'truncate',
  'one-way',
] as const

/** What befalls a member, one of its messages, or the world. */
export const faults = [
  'close',
  'crash',
  'pause',
  ...messageFaults,
  'partition',
  'server lost',
  'clock jump',
  'gpu lost',
] as const
export type FaultName = (typeof faults)[number]

/** What the member does when the fault comes. */
export const moments = [
  'joining',
  'computing',
  'saturated',
  'scatter',
  'gather',
  'updating',
  'after the update',
  'report',
  'decision',
  'catching up',
  'state transfer',
  'saving',
] as const
export type MomentName = (typeof moments)[number]

export const roles = ['ordinary', 'senior', 'donor', 'joiner'] as const
export type RoleName = (typeof roles)[number]

export interface FaultPlan {
  readonly kind: FaultName
  readonly moment: MomentName
  readonly role: RoleName
  /** At which of the moments that fit. */
  readonly nth: number
  /** How long a pause, a split or the server's absence lasts, a jump and a message's way become. units: ms. */
  readonly ms: number
}

/** Of a step. */
const inSteps = [
  'computing',
  'saturated',
  'scatter',
  'gather',
  'updating',
  'after the update',
  'saving',
] as const

/** Cells that cannot be, and why. */
export const impossible: readonly {
  readonly moment: MomentName
  readonly role: RoleName
  /** Faults that cannot be; default: all. */
  readonly kinds?: readonly FaultName[]
  readonly why: string
}[] = [
  ...inSteps.map((moment) => ({
    moment,
    role: 'donor' as const,
    why: 'a donor is one only while ranks catch up, and no step is under way then',
  })),
  { moment: 'joining', role: 'donor', why: 'a donor has the state, and so is no joiner' },
  { moment: 'catching up', role: 'donor', why: 'a donor has what the others catch up to' },
  { moment: 'state transfer', role: 'joiner', why: 'a joiner has no state to give' },
  { moment: 'state transfer', role: 'ordinary', why: 'who gives the state is a donor then' },
  { moment: 'state transfer', role: 'senior', why: 'who gives the state is a donor then' },
  { moment: 'joining', role: 'senior', why: 'who joins comes last in seniority' },
  { moment: 'joining', role: 'ordinary', why: 'who joins is a joiner' },
  ...inSteps.map((moment) => ({
    moment,
    role: 'joiner' as const,
    why: 'a joiner that takes part in a step is a member as the others are',
  })),
  ...(['ordinary', 'senior'] as const).map((role) => ({
    moment: 'saturated' as const,
    role,
    kinds: messageFaults,
    why: 'the sum begins at once: the next message is its first one, in scatter',
  })),
]

/** `kind`: of that fault; default: of any. */
export const isPossible = (moment: MomentName, role: RoleName, kind?: FaultName): boolean =>
  !impossible.some(
    (cell) =>
      cell.moment === moment &&
      cell.role === role &&
      (!cell.kinds || (kind !== undefined && cell.kinds.includes(kind))),
  )

export type Cell = Pick<FaultPlan, 'kind' | 'moment' | 'role'>

/** All cells that can be. */
export const cells: readonly Cell[] = faults.flatMap((kind) =>
  moments.flatMap((moment) =>
    roles.filter((role) => isPossible(moment, role, kind)).map((role) => ({ kind, moment, role })),
  ),
)

/** The senior member leads, unless it is not there when it should: then it comes back to another one's call. */
const absence: readonly FaultPlan[] = [
  { kind: 'pause', moment: 'computing', role: 'senior', nth: 1, ms: 5500 },
  { kind: 'gpu lost', moment: 'computing', role: 'ordinary', nth: 2, ms: 0 },
]

/** The senior member is lost: the next one leads. */
const loss: readonly FaultPlan[] = [
  { kind: 'close', moment: 'computing', role: 'senior', nth: 3, ms: 0 },
]

/** A member is lost when some have ended a step and the senior one has not. */
const lag: readonly FaultPlan[] = [
  { kind: 'close', moment: 'after the update', role: 'ordinary', nth: 2, ms: 0 },
]

/** Another member is lost while the state is given: the donor answers a call, or leads where that was the senior one. */
const stopped = (role: RoleName): readonly FaultPlan[] => [
  ...lag,
  { kind: 'close', moment: 'catching up', role, nth: 1, ms: 0 },
]

/** Both that hold the state are lost while two newcomers take it: one of those leads, when a person has decided. */
const orphans: readonly FaultPlan[] = [1, 2].map((nth) => ({
  kind: 'close',
  moment: 'state transfer',
  role: 'donor',
  nth,
  ms: 0,
}))

/** What leads to a cell's moment, where little else does. */
function wayTo(cell: Cell | undefined): readonly FaultPlan[] {
  if (cell?.moment === 'report' && cell.role === 'senior') return absence
  if (cell?.moment === 'decision' && cell.role === 'ordinary') return loss
  if (cell?.moment === 'catching up' && cell.role !== 'joiner') return lag
  if (cell?.moment === 'report' && cell.role === 'donor') return stopped('ordinary')
  if (cell?.moment === 'decision' && cell.role === 'donor') return stopped('senior')
  if (cell?.moment === 'decision' && cell.role === 'joiner') return orphans
  return []
}

export interface ElasticScenario {
  readonly seed: number
  /** By member that begins the run: which kind of device it computes on, and which machine it is on. */
  readonly founders: readonly { readonly device: number; readonly machine: number }[]
  /** When others open the room's link. units: ms. */
  readonly joiners: readonly {
    readonly atMs: number
    readonly device: number
    readonly machine: number
  }[]
  readonly steps: number
  readonly virtualWorkers: number
  readonly stepMs: number
  readonly delayMs: number
  readonly faults: readonly FaultPlan[]
  readonly liar?: LiarPlan | undefined
}

/** What a world is to have, whatever its seed. */
export interface WorldKind {
  /** The first fault. */
  readonly cell?: Cell | undefined
  /** How many members begin the run, at least and at most. Default: 2 to 6. */
  readonly members?: readonly [number, number] | undefined
  /** A tab that lies: then half of the worlds have no other fault. */
  readonly liar?: LiarPlan['role'] | undefined
}

export function drawElastic(
  seed: number,
  { cell, members = [2, 6], liar }: WorldKind = {},
): ElasticScenario {
  const { faults, ...honest } = drawHonest(seed, cell, members)
  if (!liar) return { ...honest, faults }
  const draw = new Draw(seed, 1)
  const lies = draw.pick([1, 4, 40])
  const everyMs = draw.pick([1, 20, 400])
  const removal = new Draw(seed, 3)
  const isRemoved = liar === 'member' && removal.isOneIn(3)
  const removedMs = isRemoved ? removal.whole(0, 40 * honest.stepMs) : undefined
  const plan = { role: liar, lies, everyMs, removedMs }
  // Where a liar is one of two, the other one is all that is left.
  const founders =
    honest.founders.length < 3 ? [...honest.founders, honest.founders[0]!] : honest.founders
  return { ...honest, founders, faults: draw.isOneIn(2) ? [] : faults, liar: plan }
}

function drawHonest(
  seed: number,
  cell: Cell | undefined,
  [min, max]: readonly [number, number],
): ElasticScenario {
  const draw = new Draw(seed)
  const isMixed = draw.isOneIn(2)
  const machines = draw.whole(1, 4)
  const member = () => ({
    device: isMixed ? draw.whole(0, 1) : 0,
    machine: draw.whole(0, machines - 1),
  })
  const needsJoiner =
    cell && (cell.role === 'joiner' || cell.role === 'donor' || cell.moment === 'catching up')
  const count = needsJoiner ? draw.whole(1, 2) : draw.whole(0, 2)
  // Some have ended a step and others have not: where links are slow, and members many.
  const needsLag = wayTo(cell).some((plan) => lag.includes(plan))
  const needsOrphans = wayTo(cell) === orphans
  const stepMs = draw.pick([5, 40, 200])
  const fault = (own = { kind: draw.pick(faults), ...drawCell(draw) }): FaultPlan => ({
    ...own,
    nth: draw.whole(
      1,
      own.moment === 'report' || own.moment === 'decision' ? 3 : draw.pick([1, 3, 8]),
    ),
    ms: draw.pick([500, 2500, 9000, 25_000]),
  })
  return {
    seed,
    founders: Array.from(
      { length: draw.whole(needsLag ? Math.min(4, max) : min, needsOrphans ? 2 : max) },
      member,
    ),
    joiners: Array.from({ length: needsOrphans ? 2 : count }, () => ({
      atMs: needsOrphans ? 0 : draw.whole(0, 20 * stepMs),
      ...member(),
    })),
    steps: 40,
    virtualWorkers: draw.pick([4, 8]),
    stepMs,
    delayMs: draw.pick(needsLag ? [40] : [0.5, 5, 40]),
    faults: [
      ...(cell ? [{ ...fault(cell), nth: 1 }] : []),
      ...wayTo(cell),
      ...Array.from({ length: cell ? draw.whole(0, 1) : draw.whole(1, 4) }, () => fault()),
      // More than can be linked all to all: a class, of which several leave at once.
      ...Array.from({ length: max > meshLimit ? draw.whole(0, 6) : 0 }, () => ({
        ...fault(),
        kind: 'close' as const,
      })),
    ],
  }
}

function drawCell(draw: Draw): { moment: MomentName; role: RoleName } {
  const role = draw.pick(roles)
  return { role, moment: draw.pick(moments.filter((moment) => isPossible(moment, role))) }
}
