import type { ComponentType } from 'preact'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { QueryAnswer, Whose } from '../../worker/api.ts'
import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'

/** Props of a demo's view (`demos/<name>/view.tsx`), which is drawn again with each snapshot. */
export interface ViewProps {
  /** Settings of the run, or before there is one, of the run that could be started now, but for those that cannot be read. */
  readonly config: Partial<TrainConfig> | null
  /** The run of this tab, or its last one. */
  readonly run: Run | null
  /** The others have begun the room's run, or ended it, and this tab has no part in it. */
  readonly isOthers: boolean
  /** True if this tab may change the settings: it made the room, and nothing runs. */
  readonly canSet: boolean
  /** True if this tab may change settings of the run under way: those whose rows say `isLive`. */
  readonly canChange: boolean
  /** Sets one of the page's settings, if `canSet`, or one of the run's, if `canChange`. */
  readonly set: Acts['set']
  /** Returns what the demo's look gives on this rank. errors: rejects while there is no model, and as the look says. */
  readonly query: Query
  /** The model that `query` asks. */
  readonly whose: Whose
  /** Answer to the query `part`: this rank's part of the newest step; null where it has none. */
  readonly part: QueryAnswer | null
  /** Ranks of this tab whose models differ: all of them where they train without an exchange; none where one is as good as all. */
  readonly apart: readonly number[]
  /** By rank of the run: its colour, for `--hue`. */
  readonly hues: readonly string[]
  /** As `query`, on another rank of this tab. */
  readonly queryOn: (rank: number) => Query
  /**
   * Keeps what the person gave (points, a picture, a text) and sets the data to it, for the next run; null takes it back. `text` is the same
   * for an address, where it is short enough; `samples`: how many of it are for training, where that is known.
   */
  readonly give: (
    bytes: Uint8Array<ArrayBuffer> | null,
    text?: string | null,
    samples?: number,
  ) => void
  /** What the address had, as `text`; null for nothing. */
  readonly givenInLink: string | null
  /** Says that this cannot be read. */
  readonly refuseLink: () => void
}

export type Query = (name: string, input?: unknown) => Promise<QueryAnswer>

export type View = ComponentType<ViewProps>

/** By the name of the demo: loads its view. */
export type ViewLoaders = Readonly<Record<string, (() => Promise<View>) | undefined>>
