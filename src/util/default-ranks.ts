/** A rank among how many. */
export interface RankNumbers {
  readonly rank: number
  readonly size: number
}

let current: RankNumbers | undefined

/** The default process group's, for layers that know no groups; undefined where there is none. */
export const defaultRanks = (): RankNumbers | undefined => current

/** For who keeps the default group. */
export function setDefaultRanks(numbers: RankNumbers | undefined): void {
  current = numbers
}
