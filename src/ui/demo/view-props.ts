import type { ComponentType } from 'preact'
import type { TrainConfig } from '../../train/config.ts'
import type { LookAnswer } from '../../worker/api.ts'
import type { SettingKey } from '../settings.ts'
import type { Run } from '../state.ts'

/** What a demo's view (`demos/<name>/view.tsx`) works with; it is drawn anew with each snapshot. */
export interface ViewProps {
  /** Settings of the run, or before there is one, of the run that could be started now; null while these have errors. */
  readonly config: Partial<TrainConfig> | null
  /** The run of this tab, or its last one. */
  readonly run: Run | null
  /** Whether this tab may change the settings: it made the room, and nothing runs. */
  readonly canSet: boolean
  /** Sets one of the page's settings, as text; for whoever `canSet`. */
  readonly set: (key: SettingKey, value: string) => void
  /** Returns what the demo's look gives on this rank. errors: rejects while there is no model, and as the look says. */
  readonly look: (name: string, input?: unknown) => Promise<LookAnswer>
  /** Keeps what the person gave (points, a picture, a text) and sets the data to it, for the next run. */
  readonly give: (bytes: Uint8Array<ArrayBuffer>) => void
}

export type View = ComponentType<ViewProps>

/** By the name of the demo: loads its view. */
export type ViewLoaders = Readonly<Record<string, (() => Promise<View>) | undefined>>
