/** The page function by which a rank of `tabring run --elastic` asks for its next group. It resolves with the variables of that group, as JSON. */
export const nextGroupName = '__tabringNextGroup'

/** The page function by which the launcher tells a rank that its group ends. */
export const groupEndsName = '__tabringGroupEnds'

/** What the launcher tells a rank of its group. */
export interface GroupEnds {
  /** Number of the group: its RESTART_COUNT. */
  readonly group: number
  /** A rank joins: the group ends at the next commit. Else a rank is lost, and it ends at once. */
  readonly isPlanned: boolean
  readonly why: string
}
