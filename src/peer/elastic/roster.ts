import { ballotStep, lastBallot } from '../room/ballots.ts'
import { meshLimit, ringNeighbours } from '../room/edges.ts'

/**
 * Who trains together, and who may decide who trains next. Pure functions: elastic-member.ts carries out what they find.
 *
 * Two groups must never train on after the same loss. So a new roster needs more than half of the newest roster that anybody entered, and of each
 * roster before it back to the newest that is proved. A roster is proved once one of its members has seen all others in it. Members that are
 * known to be dead do not count. Who has only said so itself may train on: without the others' majority, the server says who asked first.
 *
 * Why this is enough: let X and Y both follow the proved roster P on different branches, X with the lower ballot. More than half of P promised
 * each, so one member promised both, X first. It is a member of X, and X runs only after that member has entered it: before its promise to Y. So
 * the leader of Y saw that X was entered, and built on X. The idea is Paxos', with rosters in the place of values (Lamport, 1998).
 */

/** Members in order of seniority: who leads first. */
export interface PastRoster {
  /** Larger than that of all rosters before it. It is also the epoch of the roster's group. */
  readonly ballot: number
  readonly members: readonly string[]
}

export interface Roster extends PastRoster {
  /** The rosters before it, the newest first, back to the newest proved one. */
  readonly before: readonly PastRoster[]
  /** Each member needs links to the two beside it alone, and messages to others are passed on; else each two members are linked. */
  readonly isRing: boolean
}

/** Answer of a member to a call. It has promised to take part in no roster below the call's ballot. */
export interface Report {
  /** The newest that it has entered; null for a member that has entered none. */
  readonly roster: Roster | null
  /** The newest roster that it knows to be proved; 0 for none. */
  readonly proved: number
  /** True if it holds the state of a step that the run has reached: a newcomer does once it has got it. */
  readonly hasState: boolean
  /** The newest step of the run whose state it has. */
  readonly step: number
  /** Members to which it has a link. */
  readonly linked: readonly string[]
  /** Members to which it could make none. */
  readonly apart: readonly string[]
  /** The life before this one of the same tab, which is over, and the newest roster that it had entered. */
  readonly former: FormerLife | null
}

export interface FormerLife {
  readonly id: string
  readonly entered: number
}

export type NextRoster = Omit<Roster, 'ballot'>

export type Verdict =
  | ({ readonly kind: 'agreed' } & NextRoster)
  /**
   * Exactly half of the rosters with these ballots are here, or more than half only without those that said bye: of two parts one may continue.
   * The others are `missing`.
   */
  | ({
      readonly kind: 'half'
      readonly ballots: readonly number[]
      readonly missing: readonly string[]
    } & NextRoster)
  /** More than half are missing, these; the `unlinked` of them are here, and lack links to others. */
  | {
      readonly kind: 'missing'
      readonly missing: readonly string[]
      readonly unlinked: readonly string[]
    }
  /** These are dead, and held what nobody here does: a later roster, or the state. Steps are lost unless they are alive after all. */
  | { readonly kind: 'ahead'; readonly ahead: readonly string[] }
  /** Nobody here has entered a roster. */
  | { readonly kind: 'none' }

/**
 * A ballot of the member `id` above all that it has `seen`: a number, and 16 bits of the id, so that two leaders have different ballots. Null
 * where there is none: the run has had 65,535 of them.
 */
export function ballotAbove(seen: number, id: string): number | null {
  const ballot = (Math.floor(seen / ballotStep) + 1) * ballotStep + hash16(id)
  return ballot > lastBallot ? null : ballot
}

function hash16(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash ^ (hash >>> 16)) & 0xffff
}

/** Grounds of a verdict. */
export interface Evidence {
  /** One of the members that have answered. */
  readonly leader: string
  /** By member, what each has answered. */
  readonly reports: ReadonlyMap<string, Report>
  /** By id, the newest roster that a member had entered when it died. */
  readonly dead: ReadonlyMap<string, number>
  /** Those of the dead of which nothing else says so. */
  readonly saidBye: ReadonlySet<string>
  /** Newcomers that are not let in. */
  readonly keptOut: ReadonlySet<string>
  /** The maximum number of members. */
  readonly max: number
}

/** The newest roster that those of the leader's own one know to be proved; none after it is believed to be: the leader would be in it. */
const provedOf = (own: Roster, reports: Evidence['reports']): number =>
  Math.min(own.ballot, Math.max(...own.members.map((id) => reports.get(id)?.proved ?? 0)))

/**
 * The rosters that count, the newest first: the leader's own one and those before it, and later ones that members of it have reported, which nobody can
 * have decided without half of it. One that is not proved, and that a member of it which has answered has not entered, never began and never will:
 * that member has promised the leader.
 */
export function countedOf({
  leader,
  reports,
  dead,
}: Pick<Evidence, 'leader' | 'reports' | 'dead'>): [PastRoster, ...PastRoster[]] | null {
  const own = reports.get(leader)?.roster
  if (!own) return null
  const hasEntered = (id: string, ballot: number) => {
    const report = reports.get(id)
    return report === undefined || (report.roster?.ballot ?? 0) >= ballot
  }
  const hasBegun = ({ ballot, members }: PastRoster) =>
    members.every((id) => hasEntered(id, ballot))
  const later = new Map<number, PastRoster>()
  for (const { roster } of own.members.flatMap((id) => reports.get(id) ?? []))
    for (const one of roster ? [roster, ...roster.before] : [])
      if (one.ballot > own.ballot && hasBegun(one) && hasHalf(one.members, own.members, dead))
        later.set(one.ballot, one)
  const proved = provedOf(own, reports)
  const since = [own, ...own.before]
  const oldest = since.pop()!
  const [newest, ...before] = [
    ...[...later.values()].sort((a, b) => b.ballot - a.ballot),
    ...since.filter((one) => one.ballot <= proved || hasBegun(one)),
    oldest,
  ]
  return [newest!, ...before]
}

/** Tells whether half of those members who are not known to be dead are among `ids`, or more. */
export const hasHalf = (
  ids: readonly string[],
  members: readonly string[],
  dead: { has(id: string): boolean },
): boolean =>
  members.filter((id) => ids.includes(id)).length * 2 >=
  members.filter((id) => !dead.has(id)).length

/**
 * Decides what the members that have answered may do.
 *
 * Only members of the leader's roster are believed.
 */
export function judge(evidence: Evidence): Verdict {
  const { leader, reports, dead, saidBye } = evidence
  const counted = countedOf(evidence)
  if (!counted) return { kind: 'none' }
  const [newest] = counted
  const own = reports.get(leader)!.roster!
  const chain = backTo(provedOf(own, reports), counted)
  // Others of a later roster were members of one of these: without their words nothing follows from a newcomer's.
  const isMember = (id: string) => counted.some(({ members }) => members.includes(id))
  const known = Math.max(...own.members.map((id) => reports.get(id)?.roster?.ballot ?? 0))
  const ahead = [...dead].flatMap(([id, ballot]) => (ballot > known && isMember(id) ? [id] : []))
  // Without one of them no later roster had half of this one, and none was complete.
  const here = newest.members.filter((id) => reports.has(id))
  if (ahead.length > 0 && here.length * 2 <= newest.members.length) return { kind: 'ahead', ahead }

  const { members, isRing } = linkedMembers(newest.members, own.isRing, evidence)
  if (!members.some((id) => newest.members.includes(id) && reports.get(id)!.hasState))
    return { kind: 'ahead', ahead: newest.members.filter((id) => !members.includes(id)) }
  const halves: number[] = []
  const absent = new Set<string>()
  for (const { ballot, members: all } of chain) {
    const alive = all.filter((id) => !dead.has(id))
    const here = alive.filter((id) => members.includes(id))
    const mayBe = all.filter((id) => !dead.has(id) || saidBye.has(id))
    if (here.length * 2 > mayBe.length || alive.length === 0) continue
    // Who has said goodbye here may be more than half with others elsewhere, and these need not ask which half was first.
    if (here.length < alive.length && here.length * 2 < mayBe.length) {
      const missing = alive.filter((id) => !members.includes(id))
      return { kind: 'missing', missing, unlinked: missing.filter((id) => reports.has(id)) }
    }
    halves.push(ballot)
    for (const id of mayBe) if (!members.includes(id)) absent.add(id)
  }
  const before = chain.map(({ ballot, members: all }) => ({ ballot, members: all }))
  const next = { members, before, isRing }
  return halves.length > 0
    ? { kind: 'half', ballots: halves, missing: [...absent], ...next }
    : { kind: 'agreed', ...next }
}

function backTo(proved: number, rosters: readonly PastRoster[]): PastRoster[] {
  const last = rosters.findIndex(({ ballot }) => ballot <= proved)
  return last < 0 ? [...rosters] : rosters.slice(0, last + 1)
}

/**
 * Those that stay, in their order, then those that come; none that has died since its answer. Up to `meshLimit` members each two are linked; in a
 * ring, which follows a ring or takes in more than that, those beside each other are, or have not tried in vain to be. Who lacks the most links is
 * left out first, the leader never: of two that lack as many, the one that came later.
 */
function linkedMembers(
  newest: readonly string[],
  wasRing: boolean,
  { leader, reports, dead, keptOut, max }: Evidence,
): Pick<Roster, 'members' | 'isRing'> {
  const isStaying = (id: string) => newest.includes(id)
  const staying = newest.filter((id) => reports.has(id) && !dead.has(id))
  if (!isStaying(leader)) staying.push(leader)
  const coming = [...reports.keys()].filter(
    (id) =>
      reports.get(leader)!.linked.includes(id) &&
      !isStaying(id) &&
      !keptOut.has(id) &&
      !dead.has(id),
  )
  const bothSay = (a: string, b: string, says: (report: Report, other: string) => boolean) =>
    says(reports.get(a)!, b) && says(reports.get(b)!, a)
  const areLinked = (a: string, b: string) =>
    a === b || bothSay(a, b, ({ linked }, other) => linked.includes(other))
  const areBeside = (a: string, b: string) =>
    areLinked(a, b) || bothSay(a, b, ({ apart }, other) => !apart.includes(other))
  const isRing = wasRing || staying.length + coming.length > meshLimit
  const lackOf = (all: readonly string[], at: number) =>
    isRing
      ? besideIn(all, at).filter((other) => !areBeside(all[at]!, other)).length
      : all.filter((other) => !areLinked(all[at]!, other)).length
  let taken = staying
  for (;;) {
    const lacking = taken.map((id, at) => (id === leader ? 0 : lackOf(taken, at)))
    const worst = Math.max(...lacking)
    if (worst === 0) break
    taken = taken.filter((_, at) => at !== lacking.lastIndexOf(worst))
  }
  for (const id of coming) {
    const next = [...taken, id]
    if (next.length <= max && lackOf(next, taken.length) === 0) taken = next
  }
  const isMesh =
    taken.length <= meshLimit && taken.every((a) => taken.every((b) => areLinked(a, b)))
  return { members: taken, isRing: !isMesh }
}

/** The members beside that one in the ring. */
const besideIn = (all: readonly string[], at: number): string[] =>
  ringNeighbours(at, all.length).map((rank) => all[rank]!)

/** When a member calls where nobody else does, in times that a leader needs: from 1 for the most senior one to less than 9 for the last. */
export const turnOf = (self: string, members: readonly string[]): number =>
  1 + members.indexOf(self) / Math.max(2, members.length / 8)

/** Tells whether a roster was decided by those who knew the roster `own`: it, or an earlier one, had to agree. */
export const follows = (next: Roster, own: Roster): boolean =>
  next.before.some(({ ballot }) => ballot <= own.ballot)

/** Tells whether those who are `here` may continue where half of a roster is here, and `first` were the first to say so. `dead`: for sure. */
export const winsHalf = (
  here: readonly string[],
  first: readonly string[],
  dead: ReadonlyMap<string, number>,
): boolean => first.every((id) => here.includes(id) || dead.has(id))
