import { type GroupEnds, groupEndsName } from '../../../src/distributed/launcher/next-group.ts'

/** A rank's place in one group of an elastic run. */
export interface Place {
  /** Number of groups before this one. */
  readonly group: number
  readonly rank: number
  readonly worldSize: number
}

/** What the groups need of a tab. */
export interface Member {
  /** Calls a function of its page, with the words that the current group ends. */
  call(name: string, words: GroupEnds): void
}

export interface ElasticGroupsOptions<Tab> {
  /** Tabs with which the run begins. */
  readonly max: number
  /** Fewest ranks of a later group. */
  readonly min: number
  /** Number of the next group; each call gives a higher one. */
  readonly nextNumber: () => number
  /** How long the others may take to ask for the next group once one has left the current one. units: ms. */
  readonly answerMs: number
  /** A group has formed. `others`: tabs that are not in it. */
  readonly onFormed: (place: Place, tabs: readonly Tab[], others: readonly Tab[]) => void
  /** The current group ends, since a rank has left it; `why` says so for people. */
  readonly onLeft: (why: string) => void
  /** A tab has ended before the first group, for which others wait. */
  readonly onEndedEarly: () => void
  /** The tab has not asked for the next group in time. The owner closes it and calls `lost`. */
  readonly onSilent: (tab: Tab) => void
  /** Training has ended well on all ranks; tabs that still want to join are not needed. */
  readonly onDone: (newcomers: readonly Tab[]) => void
}

interface State {
  /** In the newest group that it was in; null: in none yet. */
  rank: number | null
  /** It trains in the current group. */
  isIn: boolean
  notified: 'nothing' | GroupEnds['kind']
  answer?: (place: Place) => void
}

/**
 * Decides who is in which group of an elastic run. Each tab asks for its next group when its current one has ended for it; the group forms when
 * no tab is left in the current one and enough have asked.
 *
 *   GATHERING -`max` have asked-> GROUP 0 --a tab is lost, or leaves--> the others hear that it ends, and ask --> GROUP 1
 *                                          --a new tab asks-----------> the others hear it, and end their group at their next commit
 *
 * It knows no pages, and no time but the answers' limit: `call` sends, the methods receive.
 */
export class ElasticGroups<Tab extends Member> {
  readonly #options: ElasticGroupsOptions<Tab>
  readonly #tabs = new Map<Tab, State>()
  #number = -1
  #hasBegun = false
  /** Why the current group ends at once, where it does. */
  #end: Omit<GroupEnds, 'group'> | undefined
  #hasEndedWell = false
  #hasEndedEarly = false
  #timer: NodeJS.Timeout | undefined

  constructor(options: ElasticGroupsOptions<Tab>) {
    this.#options = options
  }

  /** Ranks that have been in a group, and so have the state of the run. */
  get ranks(): number {
    return [...this.#tabs.values()].filter(({ rank }) => rank !== null).length
  }

  /** Tabs that are there, with those that are still opening. */
  get count(): number {
    return this.#tabs.size
  }

  get hasBegun(): boolean {
    return this.#hasBegun
  }

  /** Returns whether training has ended well on a rank. */
  get hasEndedWell(): boolean {
    return this.#hasEndedWell
  }

  has(tab: Tab): boolean {
    return this.#tabs.has(tab)
  }

  /** Returns whether the tab has been in no group yet. */
  isNew(tab: Tab): boolean {
    return this.#tabs.get(tab)?.rank === null
  }

  opened(tab: Tab): void {
    this.#tabs.set(tab, { rank: null, isIn: false, notified: 'nothing' })
  }

  /** Resolves with the tab's place in the next group; never for a tab that is lost first. `left`: why it has left the current one. */
  ask(tab: Tab, left?: string): Promise<Place> {
    const state = this.#tabs.get(tab)
    return new Promise((resolve) => {
      if (!state) return
      state.answer = resolve
      if (state.isIn) {
        state.isIn = false
        this.#startTimer()
        if (state.notified === 'nothing' && !this.#end) {
          const why = `rank ${state.rank} has left group ${this.#number}${left ? `: ${left}` : ''}`
          this.#end = { kind: 'left', why }
          this.#options.onLeft(why)
        }
      }
      this.#settle()
    })
  }

  /** The tab is closed; `why` says so for people. */
  lost(tab: Tab, why: string): void {
    const state = this.#tabs.get(tab)
    this.#tabs.delete(tab)
    if (state?.isIn) {
      this.#startTimer()
      this.#end = { kind: 'lost', why }
    }
    this.#settle()
  }

  /** Training has ended well on the tab, or its program has ended without. */
  ended(tab: Tab): void {
    const state = this.#tabs.get(tab)
    if (!state) return
    this.#tabs.delete(tab)
    if (state.rank === null) this.#hasEndedEarly = true
    else this.#hasEndedWell = true
    this.#settle()
  }

  /** The run is over. */
  stop(): void {
    this.#tabs.clear()
    clearTimeout(this.#timer)
  }

  #startTimer(): void {
    const { answerMs, onSilent } = this.#options
    this.#timer ??= setTimeout(() => {
      const silent = [...this.#tabs].filter(([, { isIn }]) => isIn)
      // With the last of them the next group forms.
      for (const [tab] of silent) onSilent(tab)
    }, answerMs)
  }

  #settle(): void {
    const all = [...this.#tabs]
    const inside = all.filter(([, { isIn }]) => isIn)
    const asking = all.filter(([, { answer }]) => answer)
    if (this.#hasBegun && this.ranks === 0) {
      clearTimeout(this.#timer)
      if (this.#hasEndedWell) this.#options.onDone([...this.#tabs.keys()])
    } else if (inside.length > 0) {
      const planned = { kind: 'planned', why: 'ranks join' } as const
      const end = this.#end ?? (asking.length > 0 ? planned : undefined)
      if (end) this.#announce(inside, { group: this.#number, ...end })
    } else if (asking.length >= this.needed) this.#form(asking)
    else if (!this.#hasBegun && this.#hasEndedEarly && asking.length > 0)
      this.#options.onEndedEarly()
  }

  /** How many ranks the next group needs. After the end of one rank the others need only theirs. */
  get needed(): number {
    const { max, min } = this.#options
    if (!this.#hasBegun) return max
    return this.#hasEndedWell ? 1 : min
  }

  #announce(inside: readonly [Tab, State][], words: GroupEnds): void {
    for (const [tab, state] of inside) {
      const isNews =
        state.notified === 'nothing' || (state.notified === 'planned' && words.kind !== 'planned')
      if (!isNews) continue
      state.notified = words.kind
      tab.call(groupEndsName, words)
    }
  }

  /** Ranks keep their order, newcomers follow. */
  #form(asking: readonly [Tab, State][]): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#end = undefined
    this.#number = this.#options.nextNumber()
    const last = Number.MAX_SAFE_INTEGER
    const ordered = asking.toSorted(([, a], [, b]) => (a.rank ?? last) - (b.rank ?? last))
    const worldSize = ordered.length
    const places = ordered.map((_, rank) => ({ group: this.#number, rank, worldSize }))
    const tabs = ordered.map(([tab]) => tab)
    const others = [...this.#tabs.keys()].filter((tab) => !tabs.includes(tab))
    this.#options.onFormed(places[0], tabs, others)
    for (const [rank, [, state]] of ordered.entries()) {
      const { answer } = state
      Object.assign(state, { rank, isIn: true, notified: 'nothing', answer: undefined })
      answer?.(places[rank])
    }
    this.#hasBegun = true
  }
}
