import type { Env } from '../../util/env.ts'
import type { Signer } from '../room/life-keys.ts'
import type { StepPace } from './link-test.ts'
import type { MemberLinks } from './member-links.ts'
import type { ElasticMessage } from './messages.ts'
import type { FormerLife, Roster } from './roster.ts'

/** How long members wait for each other. units: ms. */
export interface ElasticTimes {
  /** A leader, for members that have a link and do not answer a call. */
  answerMs: number
  /** The same, where no member is lost: all are about to end the same step. */
  plannedMs: number
  /** A member, for the most senior one to call, and half as long again for each one between. */
  leadMs: number
  /** A leader that may not decide, until it calls again. */
  againMs: number
  /** A member, for one that it doubts. */
  doubtMs: number
  /** A member that has heard of another one's end in another way than over the link, for what the link still brings. */
  lastMs: number
  /** A member that joins, once it has lost one of its links. */
  lameMs: number
  /** A member that joins, to be let in or to hear why it waits: the others end a step first. */
  joinMs: number
}

export const elasticTimes: ElasticTimes = {
  answerMs: 2500,
  plannedMs: 8000,
  leadMs: 3000,
  againMs: 2000,
  doubtMs: 800,
  lastMs: 150,
  lameMs: 10_000,
  joinMs: 120_000,
}

export interface ElasticMemberOptions {
  readonly env: Env
  /** Names one life of this member: after it was out it comes in with another id. */
  readonly self: string
  /** Signs what others pass on for this member. */
  readonly signer: Signer
  /** With which the run began; null for a member that joins later. */
  readonly roster: Pick<Roster, 'ballot' | 'members'> | null
  /** The life before this one, where it is over: to the others a proof that it is. */
  readonly former?: FormerLife | null
  /** The newest step of the run whose state this member has. Default: 0. */
  readonly step?: () => number
  /** The maximum number of members of a roster. */
  readonly max: number
  readonly times?: Partial<ElasticTimes>
  /** Time of a step, by which newcomers are let in and slow members found; undefined until one has ended. Default: all are let in. */
  readonly pace?: (() => StepPace | undefined) | undefined
  /** The machine of a member; undefined where it is not known. Default: of none it is. */
  readonly machineOf?: (id: string) => string | undefined
  /**
   * Of two halves of a roster the first one continues: asks the server which one that is, on behalf of `lives`. `alive`: members of the roster
   * that are not known to be dead. Null where the server cannot know; it rejects where the server does not answer. Then a person has to decide,
   * unless all that are missing have said bye. Default: no server answers.
   */
  readonly firstHalf?: (
    ballot: number,
    alive: readonly string[],
    lives: readonly string[],
  ) => Promise<readonly string[] | null>
}

/** Whom a member waits for that may not decide. */
export interface Undecided {
  readonly missing: readonly string[]
  /** They had what nobody here has: newer steps of the run, or its state. */
  readonly hadMore: boolean
  /** The newest step that those who answered have: the run would continue from it, and later ones are lost. Null: nobody here has its state. */
  readonly step: number | null
}

/** Events of a member of an elastic run for its owner. */
export interface ElasticListener {
  /** The group of the roster must end now: another roster follows. */
  stop(why: string): void
  /** Newcomers are to be let in: all should end the same step and ask for the `next` roster. Only the most senior member says so. */
  request(): void
  /** That newcomer, perhaps this member, is not let in yet, or why the others have left this one out. Null: it is gone. */
  waits?(id: string, why: string | null): void
  /** The links of that member, perhaps this one, hold up the steps, in words that follow its name; null, null: none does any more. */
  holdsUp?(id: string | null, why: string | null): void
  /** That member has said what no build of this project says, in words that follow its name: its link has ended. */
  broke?(id: string, what: string): void
  /** A member of the current roster, or of the next one, sends what WebRTC needs to link the two. */
  signal?(from: string, signal: Extract<ElasticMessage, { type: 'signal' }>): void
  /** The others continue without this member. */
  out(why: string): void
  /** This member may not decide, and a person must, by `continueWithout`. Null: that is over. */
  undecided(about: Undecided | null): void
}

/** A member, as the parts of `ElasticMember` see it. */
export interface MemberView {
  readonly options: ElasticMemberOptions
  readonly times: ElasticTimes
  readonly listener: ElasticListener
  readonly links: MemberLinks
  /** The newest that it has entered; null before the first. */
  readonly roster: Roster | null
  /** True if the group of that roster may form and train: no other one is under way. */
  readonly isRunning: boolean
  /** True if it takes part no more. */
  readonly isOver: boolean
  /** That member does not count any more, or has no link. */
  lost(id: string): void
  /** Decides again: what a call of this member has waited for may be there. */
  decide(): void
}
