import type { Asks, AssignedLink, Assignment, Lobby } from '../../peer/room/messages.ts'
import type { RoomLink } from '../../peer/room/secret.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { RunError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { RunEvent, RunResult } from '../api.ts'
import type { FormedLink } from './connect.ts'

/** What a run ended with on this rank. */
export type RunEnd =
  | { ok: true; rank: number; worldSize: number; result: RunResult; links: readonly FormedLink[] }
  | { ok: false; rank: number | null; error: Error }

/** What a tab reports of its run. */
export type MemberRunEvent =
  /** The run continues in another group: ranks were lost, or have come. */
  | { type: 'regrouped'; assignment: Assignment }
  /** A link to a neighbour is up, and which way it goes. */
  | { type: 'linked'; peerRank: number; kind: AssignedLink['kind'] }
  | { type: 'config'; config: TrainConfig }
  /** `atMs`: when it happened, as Unix time. */
  | { type: 'event'; event: RunEvent; atMs: number }
  /** The reason of the run's end, where the room gives it only after the end. */
  | { type: 'reason'; error: RunError }

/** What a tab reports of its room and its run: one stream, for the page, for a launcher's tab and for further ranks of a tab. */
export type MemberEvent =
  | MemberRunEvent
  | { type: 'lobby'; lobby: Lobby; ownId: string | null }
  /** The room's maker, by this name, has been asked to let this tab in; `join` waits. */
  | { type: 'asking'; host: string }
  /** To the maker: who waits to be let in. */
  | { type: 'asks'; asks: Asks }
  /** What the maker, another tab, would start now; null for settings that this page does not know. */
  | { type: 'proposed'; config: TrainConfig | null }
  | { type: 'assigned'; assignment: Assignment }
  /** Message of an onlooker to this rank, or of the rank that this onlooker asks. */
  | { type: 'watchMessage'; from: string; message: JsonValue }
  | { type: 'ended'; end: RunEnd }
  /** The compute worker has ended: this tab has left the room and can take part no more. */
  | { type: 'dead'; error: Error }
  /** The maker has removed a member, and the others move to another room. */
  | { type: 'moved'; link: RoomLink }
  /** The maker has removed this tab from the room, or the server has ended the room: it can come back only as a new member. */
  | { type: 'removed'; error: Error }
  /** The connection to the server has ended; a run may continue without it. */
  | { type: 'serverLost'; error: Error }
  /** The connection is back, in a room that may have forgotten what this tab sent. */
  | { type: 'serverBack' }
  /** The server said no to something, and the connection stays. */
  | { type: 'refused'; error: Error }
