import { judge, newestOf, type Report, type Roster, type Verdict } from './roster.ts'

/** A call that a member leads: what the others have answered, and what follows from that. */
export class Call {
  readonly ballot: number
  /** All members end the same step for it: none is lost. */
  readonly isPlanned: boolean
  /** It no longer waits for new members. */
  isLateForNew: boolean
  /** Nor for those of the newest roster. */
  isLate = false
  /** Members that have promised another call. */
  readonly refused = new Set<string>()
  /** Those that had refused the call before this one. */
  readonly refusedBefore: ReadonlySet<string>
  /** The server is asked which half came first. */
  isAsking = false
  readonly #self: string
  readonly #called: readonly string[]
  readonly #reports: Map<string, Report>

  /** `own`: what the leader would answer. */
  constructor(
    self: string,
    ballot: number,
    own: Report,
    isPlanned: boolean,
    called: readonly string[],
    refusedBefore: ReadonlySet<string> = new Set(),
  ) {
    this.#called = called
    this.refusedBefore = refusedBefore
    this.ballot = ballot
    this.isPlanned = isPlanned
    this.isLateForNew = !isPlanned
    this.#self = self
    this.#reports = new Map([[self, own]])
  }

  /** Who has answered, and the leader. */
  get answered(): string[] {
    return [...this.#reports.keys()]
  }

  has(id: string): boolean {
    return this.#reports.has(id)
  }

  take(from: string, report: Report): void {
    this.#reports.set(from, report)
  }

  /** Members that can answer: of those who were `called` the ones to which there are links, `up`, or to which one that has answered has one. */
  reached(up: readonly string[]): string[] {
    const reached = new Set(up)
    for (const id of reached)
      for (const other of this.#reports.get(id)?.linked ?? [])
        if (this.#called.includes(other)) reached.add(other)
    return [...reached]
  }

  /**
   * Null while it waits for answers of the members `up`, which it has reached. `dead` to `saidBye`: as of `judge`. `without`: members that the
   * next roster leaves out where the others may decide alone.
   */
  verdict(
    up: readonly string[],
    dead: ReadonlyMap<string, number>,
    most: number,
    slow: ReadonlySet<string>,
    saidBye: ReadonlySet<string>,
    without: ReadonlySet<string>,
  ): Verdict | null {
    const newest = newestOf(this.#reports.values())
    const others = this.#reportsWithout(without)
    if (others) {
      const isAwaited = (id: string) => newest?.members.includes(id) && !this.has(id)
      if (!this.isLate && up.some((id) => isAwaited(id) && !without.has(id))) return null
      const verdict = judge(this.#self, others, dead, most, slow, saidBye)
      if (verdict.kind === 'agreed') return verdict
    }
    const awaited = up.filter((id) => !this.has(id))
    if (!this.isLate && awaited.some((id) => newest?.members.includes(id))) return null
    if (!this.isLateForNew && awaited.some((id) => !slow.has(id))) return null
    return judge(this.#self, this.#reports, dead, most, slow, saidBye)
  }

  #reportsWithout(ids: ReadonlySet<string>): ReadonlyMap<string, Report> | null {
    return ids.size > 0 ? new Map([...this.#reports].filter(([id]) => !ids.has(id))) : null
  }

  /** Members of the newest roster that have not answered and are not known to be dead. `own`: the leader's roster. */
  missing(own: Roster | null, dead: ReadonlyMap<string, number>): string[] {
    const { members = [] } = newestOf(this.#reports.values()) ?? own ?? {}
    return members.filter((id) => !this.has(id) && !dead.has(id))
  }

  /** The newest step whose state one that has answered has; null where none has any. */
  get step(): number | null {
    const steps = [...this.#reports.values()].flatMap(({ hasState, step }) =>
      hasState ? [step] : [],
    )
    return steps.length > 0 ? Math.max(...steps) : null
  }

  /** Whether one that has answered has a link to one of them. */
  reaches(ids: readonly string[]): boolean {
    return ids.some((id) => [...this.#reports.values()].some(({ linked }) => linked.includes(id)))
  }
}
