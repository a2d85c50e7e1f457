import type {
  Asks,
  Assignment,
  Lobby,
  ServerFacts,
  TransportChoice,
} from '../../peer/room/messages.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import type { AdapterFacts, RunResult, SavedFile, ShelvedCheckpoint } from '../../worker/api.ts'
import type { MemberEvent } from '../../worker/page/member-events.ts'
import type { Draft, SettingKey } from '../settings/list.ts'
import type { KeptRun, RunsAction } from './kept-runs.ts'
import type { Download, Failure, Run, Saving } from './run.ts'
import type { Trouble } from './trouble.ts'

/**
 * Everything the page shows, and how it comes to change: one snapshot, one list of actions, one pure reducer.
 *
 * Times come in with the actions (`atMs`, any origin), so a recorded list of actions gives the same snapshots again.
 */

export interface Snapshot {
  /** What this page can train; it never changes. */
  readonly experiments: Experiments
  /**
   * opening: the device; entering: the room; inside; outside: `trouble` says why.
   */
  readonly stage: 'opening' | 'entering' | 'inside' | 'outside'
  readonly trouble: Trouble | null
  /** The room's address on this page, without a query: `inviteLink` makes it the link for others. Empty where there is no room. */
  readonly invite: string
  /** What the page's server offers; null before it has answered. */
  readonly server: ServerFacts | null
  readonly name: string
  readonly adapter: AdapterFacts | null
  /** Why this tab can compute nothing; null where it can. */
  readonly noDevice: string | null
  readonly ownId: string | null
  readonly lobby: Lobby | null
  /** The host who has been asked to let this tab in. */
  readonly askedHost: string | null
  /** On its way to another room: what is shown of the room is the old one. */
  readonly isMoving: boolean
  /** Where this tab is the maker: who waits to be let in. */
  readonly asks: Asks
  /** Where another tab is the maker: what it would start now, or has started. */
  readonly proposed: TrainConfig | null
  /** The connection to the signaling server has ended, with its words. */
  readonly serverLost: string | null
  /** The server's last no, until something else happens. */
  readonly refusal: string | null
  readonly draft: Draft
  /** By demo: data that a person gave on this tab, as text for an address; null where it is too much for one. */
  readonly given: Readonly<Record<string, string | null>>
  /** By demo: how many training samples that is, where its view knows. */
  readonly givenSamples: Readonly<Record<string, number | undefined>>
  /** What the page's own address had of it. */
  readonly givenInLink: { readonly demo: string; readonly text: string } | null
  /** That address, from its `?` or `#` on. */
  readonly address: string
  /** The lesson that it names; null for none. */
  readonly lesson: string | null
  /** The demo whose view could not read that, until it gets other data. */
  readonly damagedInLink: string | null
  /** The links that this tab entered the room with. */
  readonly transport: TransportChoice
  /** With how many ranks this tab entered. */
  readonly ranks: number
  /** The server relays links; false before it has said so. */
  readonly hasRelay: boolean
  /** The current run of this tab, or its last one. */
  readonly run: Run | null
  /** The runs of this tab that have ended, the oldest first. */
  readonly runs: readonly KeptRun[]
  /** Of runs in this browser's private files; null before they are known. */
  readonly checkpoints: readonly ShelvedCheckpoint[] | null
  /** How often this tab was reset: each also clears the state inside views. */
  readonly resets: number
  /** What came of the last thing that was done with them. */
  readonly checkpointNote: { readonly text: string; readonly isError: boolean } | null
}

/** Events of this tab that change the page as they come. */
type TabEvent = Exclude<
  MemberEvent,
  { error: Error } | { type: 'assigned' | 'ended' | 'moved' | 'watchMessage' }
>

export type Action =
  | TabEvent
  | { type: 'deviceOpened'; adapter: AdapterFacts; noDevice?: string }
  | { type: 'entered'; hasRelay: boolean }
  | { type: 'outside'; trouble: Trouble }
  | RunsAction
  | { type: 'assigned'; assignment: Assignment; startedAtMs: number }
  | { type: 'finished'; result: RunResult; bytesSent: number }
  | ({ type: 'failed' | 'reason' } & Failure)
  | { type: 'stopping' }
  | { type: 'stepping'; isStepping: boolean }
  | { type: 'testLasts'; sinceMs: number }
  | { type: 'server'; facts: ServerFacts }
  | { type: 'serverLost'; text: string }
  | { type: 'refused'; text: string }
  | { type: 'setting'; key: SettingKey; value: string }
  | { type: 'given'; demo: string; text: string | null; samples?: number }
  | { type: 'givenBack'; demo: string }
  | { type: 'damagedInLink'; demo: string }
  | { type: 'named'; name: string }
  | { type: 'moving'; isMoving: boolean }
  | { type: 'moved'; invite: string }
  | { type: 'reset' }
  /** What a rank shows this tab, which has none. */
  | { type: 'watched'; run: Run | null }
  // Of a run that another may have followed meanwhile.
  | { type: 'download'; runId: string; download: Download }
  | { type: 'saving'; runId: string; saving: Saving; file?: SavedFile }
  | { type: 'checkpoints'; files: readonly ShelvedCheckpoint[] }
  | { type: 'checkpointDeleted'; file: ShelvedCheckpoint }
  | { type: 'checkpointNote'; text: string; isError: boolean }

export interface Beginning {
  experiments: Experiments
  invite: string
  name: string
  draft: Draft
  transport: TransportChoice
  ranks?: number
  givenInLink?: Snapshot['givenInLink']
  address?: Snapshot['address']
  lesson?: Snapshot['lesson']
}

export function begin({
  experiments,
  invite,
  name,
  draft,
  transport,
  ranks = 1,
  givenInLink = null,
  address = '',
  lesson = null,
}: Beginning): Snapshot {
  return {
    experiments,
    stage: 'opening',
    trouble: null,
    invite,
    server: null,
    name,
    adapter: null,
    noDevice: null,
    ownId: null,
    lobby: null,
    askedHost: null,
    isMoving: false,
    asks: [],
    proposed: null,
    serverLost: null,
    refusal: null,
    draft,
    given: {},
    givenSamples: {},
    givenInLink,
    address,
    lesson,
    damagedInLink: null,
    transport,
    ranks,
    hasRelay: false,
    run: null,
    runs: [],
    checkpoints: null,
    checkpointNote: null,
    resets: 0,
  }
}
