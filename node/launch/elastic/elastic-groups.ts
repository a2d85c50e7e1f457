import type { GroupEnds } from '../../../src/distributed/launcher/next-group.ts'

/** A rank's place in one group of an elastic run. */
export interface Place {
  /** Number of groups before this one. */
  readonly group: number
  readonly rank: number
  readonly worldSize: number
}

/** What the groups need of a tab. */
export interface Member {
  /** Tells its page that the current group ends. */
  tell(words: GroupEnds): void
}

export interface ElasticGroupsOptions<Tab> {
  /** Tabs with which the run begins. */
  readonly most: number
  /** Fewest ranks of a later group. */
  readonly least: number
  /** Number of the next group; each call gives a higher one. */
  readonly nextNumber: () => number
  /** How long the others may take to ask for the next group once one has left the current one. units: ms. */
  readonly answerMs: number
  /** A group has formed. */
  readonly onFormed: (place: Place, tabs: readonly Tab[]) => void
  /** Fewer than `least` ranks are left: they wait. */
  readonly onFew: (ranks: number) => void
  /** The tab has not asked for the next group in time. The owner closes it and calls `lost`. */
  readonly onSilent: (tab: Tab) => void
  /** All ranks that have trained have ended well; those that still want to join are not needed. */
  readonly onDone: () => void
}

interface State {
  /** In the newest group that it was in; null: in none yet. */
  rank: number | null
  /** It trains in the current group. */
  isIn: boolean
  told: 'nothing' | 'planned' | 'ends'
  answer?: (place: Place) => void
}

/**
 * Decides who is in which group of an elastic run. Each tab asks for its next group when its current one has ended for it; the group forms when
 * no tab is left in the current one and enough have asked.
 *
 *   GATHERING -`most` have asked-> GROUP 0 --a tab is lost, or leaves--> the others hear that it ends, and ask --> GROUP 1
 *                                          --a new tab asks-----------> the others hear it, and end their group at their next commit
 *
 * It knows no pages, and no time but the answers' limit: `tell` sends, the methods receive.
 */
export class ElasticGroups<Tab extends Member> {
  readonly #options: ElasticGroupsOptions<Tab>
  readonly #tabs = new Map<Tab, State>()
  #number = -1
  #hasBegun = false
  /** A rank of the current group was lost, or has asked for the next one without having heard that there is to be one. */
  #why: string | undefined
  #hasEndedWell = false
  #isFew = false
  #timer: NodeJS.Timeout | undefined

  constructor(options: ElasticGroupsOptions<Tab>) {
    this.#options = options
  }

  /** Whether a tab is left that has been in a group: it has the run's state. */
  get hasState(): boolean {
    return [...this.#tabs.values()].some(({ rank }) => rank !== null)
  }

  /** Whether the run has come to its end on a rank, and so on all that were in its group. */
  get hasEndedWell(): boolean {
    return this.#hasEndedWell
  }

  /** Tabs that are there, with those that are still opening. */
  get count(): number {
    return this.#tabs.size
  }

  opened(tab: Tab): void {
    this.#tabs.set(tab, { rank: null, isIn: false, told: 'nothing' })
  }

  /** Resolves with the tab's place in the next group; never for a tab that is lost first. */
  ask(tab: Tab): Promise<Place> {
    const state = this.#tabs.get(tab)
    return new Promise((resolve) => {
      if (!state) return
      state.answer = resolve
      if (state.isIn) {
        state.isIn = false
        this.#startTimer()
        if (state.told === 'nothing') this.#why ??= `rank ${state.rank} has left the group`
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
      this.#why ??= why
    }
    this.#settle()
  }

  /** The tab's program has ended well. */
  ended(tab: Tab): void {
    this.#tabs.delete(tab)
    this.#hasEndedWell = true
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
      for (const [tab, { isIn }] of this.#tabs) if (isIn) onSilent(tab)
    }, answerMs)
  }

  #settle(): void {
    const all = [...this.#tabs]
    const inside = all.filter(([, { isIn }]) => isIn)
    const asking = all.filter(([, { answer }]) => answer)
    if (this.#hasBegun && !this.hasState) {
      clearTimeout(this.#timer)
      if (this.#hasEndedWell) this.#options.onDone()
    } else if (inside.length > 0) {
      if (this.#why !== undefined)
        this.#tell(inside, { group: this.#number, isPlanned: false, why: this.#why })
      else if (asking.length > 0)
        this.#tell(inside, { group: this.#number, isPlanned: true, why: 'a rank joins' })
    } else if (asking.length >= this.#needed) this.#form(asking)
    else if (this.#hasBegun && asking.length > 0 && !this.#isFew) {
      this.#isFew = true
      this.#options.onFew(asking.length)
    }
  }

  /** After the end of one rank the others need only theirs. */
  get #needed(): number {
    const { most, least } = this.#options
    if (!this.#hasBegun) return most
    return this.#hasEndedWell ? 1 : least
  }

  #tell(inside: readonly [Tab, State][], words: GroupEnds): void {
    const next = words.isPlanned ? 'planned' : 'ends'
    for (const [tab, state] of inside) {
      if (state.told === next || state.told === 'ends') continue
      state.told = next
      tab.tell(words)
    }
  }

  /** Ranks keep their order, newcomers follow. */
  #form(asking: readonly [Tab, State][]): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#why = undefined
    this.#hasBegun = true
    this.#isFew = false
    this.#number = this.#options.nextNumber()
    const last = Number.MAX_SAFE_INTEGER
    const ordered = asking.toSorted(([, a], [, b]) => (a.rank ?? last) - (b.rank ?? last))
    const worldSize = ordered.length
    const places = ordered.map((_, rank) => ({ group: this.#number, rank, worldSize }))
    this.#options.onFormed(
      places[0],
      ordered.map(([tab]) => tab),
    )
    for (const [rank, [, state]] of ordered.entries()) {
      const { answer } = state
      Object.assign(state, { rank, isIn: true, told: 'nothing', answer: undefined })
      answer?.(places[rank])
    }
  }
}
