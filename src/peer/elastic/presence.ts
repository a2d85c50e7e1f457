import type { ElasticMessage } from './messages.ts'
import type { MemberView, Undecided } from './options.ts'
import type { FormerLife } from './roster.ts'

/** Beyond it those are forgotten that are in no roster and had no link. */
const maxDead = 256

/** The members of a run that may be there, as far as one member's links and what it has heard show. */
export class Presence {
  /** By id: the newest roster that a member had entered when it died. */
  readonly dead = new Map<string, number>()
  /** Those of them of which nothing says so but their own word over a link. */
  readonly saidBye = new Set<string>()
  /** Those of them whose run is over: the others do not need them any more. */
  readonly done = new Set<string>()
  /** Members that have said since the newest roster that the others continue without this one. */
  readonly outside = new Set<string>()
  /** Members of the newest roster to which no link could be made: the next one does without such a link where it needs one. */
  readonly apart = new Set<string>()
  /** By id, the newest roster that a member had entered that others say is gone for good: it counts once its link has ended. */
  readonly #said = new Map<string, number>()
  readonly #view: MemberView
  /** Members that this one waits for, as reported to the owner. */
  #undecided: Undecided | null = null

  constructor(view: MemberView) {
    this.#view = view
  }

  /** Those that hear what this member sends to all: with links, and in a ring those to whom others pass it on. */
  get others(): string[] {
    const { options, links, roster } = this.#view
    const isFar = (id: string) => id !== options.self && !this.dead.has(id)
    return [...new Set([...links.up, ...(roster?.isRing ? roster.members.filter(isFar) : [])])]
  }

  /** Those of the dead that are so for sure, not by their own word alone. */
  get surelyDead(): Map<string, number> {
    return new Map([...this.dead].filter(([id]) => !this.saidBye.has(id)))
  }

  /** True if this member has no link to one of its roster that may be alive. */
  get lacksLinks(): boolean {
    const { members = [] } = this.#view.roster ?? {}
    return members.some((id) => !this.mayBeThere(id) && !this.dead.has(id))
  }

  mayBeThere(id: string): boolean {
    const { options, links, roster } = this.#view
    if (id === options.self || links.isUp(id)) return true
    return roster?.isRing === true && !links.known.includes(id) && !this.dead.has(id)
  }

  /** Tells whether that member is in no roster yet, as far as this one knows. */
  isNew(id: string): boolean {
    const members = this.#view.roster?.members
    return members !== undefined && !members.includes(id) && !this.dead.has(id)
  }

  /**
   * A member is dead for sure: it was evicted, or has left, with the newest roster that it may have `entered`, or its process has ended. Then the
   * link must still be up once all that was on its way has come: a member that had entered a roster without this one would have closed it.
   */
  isDead(id: string, entered?: number): void {
    const { options, times, links, isOver } = this.#view
    if (isOver) return
    if (entered === undefined && !this.dead.has(id))
      options.env.after(times.lastMs, () => {
        if (links.isUp(id)) this.isDead(id, this.#view.roster?.ballot ?? 0)
      })
    else if (!this.dead.has(id)) this.#isGone(id, entered!)
    else if (entered !== undefined && this.saidBye.delete(id)) this.#view.decide()
  }

  /** A member has left, as the server reports, with the newest roster that it may have `entered`. */
  hasLeft(id: string, entered: number): void {
    if (!this.#isAsked(id, entered)) this.isDead(id, entered)
  }

  /** Its tab has come in again, as that says: nothing of that life is left, whatever it has said itself. */
  isFormer({ id, entered }: FormerLife): void {
    if (this.#isAsked(id, entered)) return
    this.dead.set(id, entered)
    this.saidBye.delete(id)
  }

  /** Tells whether there is a link to one that others say is gone: they may lie, so it is asked itself. */
  #isAsked(id: string, entered: number): boolean {
    if (!this.#view.links.isUp(id)) return false
    this.#said.set(id, entered)
    this.doubt(id)
    return true
  }

  /** It has answered. */
  isThere(id: string): void {
    this.#said.delete(id)
  }

  /** Its link has ended. */
  ended(id: string): void {
    const entered = this.#said.get(id)
    if (entered === undefined) return
    this.#said.delete(id)
    if (!this.dead.has(id)) this.dead.set(id, entered)
    this.saidBye.delete(id)
  }

  #isGone(id: string, entered: number): void {
    this.dead.set(id, entered)
    this.#view.links.close(id, 'that member is dead')
    this.#view.lost(id)
  }

  /** That member says bye. */
  left(
    id: string,
    { entered, isDone }: Pick<Extract<ElasticMessage, { type: 'bye' }>, 'entered' | 'isDone'>,
  ): void {
    if (this.dead.has(id)) return
    if (this.dead.size >= maxDead) this.#forgetStrangers()
    this.saidBye.add(id)
    if (!isDone || !this.#view.isRunning) {
      this.#isGone(id, entered)
      return
    }
    // Its last frames are on their way to this member's own end.
    this.dead.set(id, entered)
    this.done.add(id)
  }

  /** The host, at this tab, has removed that member: its link ends with the next roster. */
  isRemoved(id: string, entered: number): void {
    this.dead.set(id, entered)
    this.saidBye.add(id)
  }

  /** In a ring others may pass on goodbyes of any number of tabs. */
  #forgetStrangers(): void {
    const { links, roster } = this.#view
    const rosters = roster ? [roster, ...roster.before] : []
    const known = new Set([...links.known, ...rosters.flatMap(({ members }) => members)])
    for (const id of this.dead.keys()) if (!known.has(id)) this.forget(id)
  }

  /** A member's connection to the server has ended, or others say that it is gone: its link ends too, unless it answers. */
  doubt(id: string): void {
    const { links, times, isOver } = this.#view
    if (!isOver) links.doubt(id, times.doubtMs)
  }

  /** This member may not decide without some; null: it need not any more. */
  awaits(about: Undecided | null): void {
    if (JSON.stringify(about) === JSON.stringify(this.#undecided)) return
    this.#undecided = about
    this.#view.listener.undecided(about)
  }

  /** A person has decided: those that this member waits for are gone, and knew nothing newer than `ballot`. False where it waits for none. */
  giveUp(ballot: number): boolean {
    if (!this.#undecided) return false
    for (const id of [...this.#undecided.missing, ...this.dead.keys()]) this.dead.set(id, ballot)
    this.saidBye.clear()
    return true
  }

  /** Forgets who died before all of `members` entered their roster. */
  keep(members: readonly string[]): void {
    for (const id of [...this.dead.keys()]) if (!members.includes(id)) this.forget(id)
  }

  forget(id: string): void {
    this.dead.delete(id)
    this.saidBye.delete(id)
    this.done.delete(id)
    this.outside.delete(id)
    this.#said.delete(id)
  }
}
