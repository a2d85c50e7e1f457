/**
 * The page function by which a rank of `tabring run --elastic` asks for its next group: it resolves with the variables of that group, as JSON.
 * With `true` the rank says that its training has ended well; with a text, why it has left a group that was not to end.
 */
export const nextGroupName = '__tabringNextGroup'

/** The page function by which the launcher ends a rank's group. */
export const groupEndsName = '__tabringGroupEnds'

/** Message of the launcher to a rank whose group ends. */
export interface GroupEnds {
  /** Number of the group: its RESTART_COUNT. */
  readonly group: number
  /** `planned`: ranks join, and the group ends at the next commit. Else it ends at once: a rank is `lost`, or has `left` it. */
  readonly kind: 'planned' | 'lost' | 'left'
  readonly why: string
}

/** Variables that another group of a rank changes; none is set before the first group. */
export const groupVariables: ReadonlySet<string> = new Set([
  'RANK',
  'LOCAL_RANK',
  'WORLD_SIZE',
  'LOCAL_WORLD_SIZE',
  'ROOM_ID',
  'ROOM_KEY',
  'RESTART_COUNT',
  'SLURM_PROCID',
  'SLURM_LOCALID',
  'SLURM_NTASKS',
])

/** Returns whether an error of this code is one of the group or the device: the rank keeps its commits, and can train in another group. */
export const endsGroup = (code: string): boolean => /^(peer\.|gpu\.lost$)/.test(code)
