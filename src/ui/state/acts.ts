import type { StepSample } from '../../trainer/watch/step-sample.ts'
import type { QueryAnswer, ShelvedCheckpoint, Whose } from '../../worker/api.ts'
import type { SettingKey } from '../settings/list.ts'
import type { KeptRun } from './kept-runs.ts'

/** What a person can do on the page. */
export interface Acts {
  /** `value`: a text, or one made of the text that is set now: the page may not have drawn it yet. Resolves when it is taken or refused. */
  set(key: SettingKey, value: string | ((text: string) => string)): Promise<void> | void
  rename(name: string): void
  start(): void
  /** Takes these members out of the room, and starts with the others. */
  startWithout(ids: readonly string[]): void
  /** Continues the run that has ended, from its last checkpoint in this browser. */
  continueRun(): void
  stop(): void
  /** Default settings, an empty chart, no model. */
  reset(): void
  /** Lets one of those who wait into the room, or declines. */
  letIn(id: string, isLetIn: boolean): void
  /** Makes another member the room's maker. */
  handOver(id: string): void
  /** Takes a member out of the room, with all ranks of its tab. */
  remove(id: string): void
  /** The same, and takes all others to a room with a new link; between runs. */
  removeAndLock(id: string): void
  /** Asks all ranks to pause behind one step, and ends that again. */
  pause(): void
  goOn(): void
  /** In a pause: all ranks take one step and pause again. */
  oneStep(): void
  /** An elastic run continues without the members that are missing. */
  continueWithout(): void
  /** Takes no rank, or one again. */
  watch(watches: boolean): void
  /** Saves a checkpoint of the run in this browser. */
  save(): void
  /** Asks a compute worker of this tab for a demo's look: that of `rank`, or of the rank that the page shows; `whose` model, as `ComputeApi.query`. */
  query(name: string, input?: unknown, rank?: number, whose?: Whose): Promise<QueryAnswer>
  /** Keeps what a person gave to a demo, for its next run; null takes it back. `text` is the same for an address, where it is short enough. */
  give(
    demo: string,
    bytes: Uint8Array<ArrayBuffer> | null,
    text?: string | null,
    samples?: number,
  ): void
  /** A demo's view could not read the data that the page's address had for it. */
  damagedInLink(demo: string): void
  download(): void
  /** Saves the spans of the run as a Chrome trace; null where nobody asked for any. */
  saveTrace: (() => void) | null
  /** Saves what this tab saw of a run with `exact`, for `npm run replay`. */
  saveLog(): void
  /** Saves the points of the runs that the chart shows as CSV; `csvOf` comes with the table of runs, after the first load. */
  exportCsv(csvOf: (runs: readonly KeptRun[]) => string): void
  /** Saves the sampled steps of all ranks as a Chrome trace; `traceOf` comes with the panel, after the first load. */
  saveTimeline(
    traceOf: (
      samples: readonly (readonly StepSample[])[],
      own: number,
      isSameClock: (rank: number) => boolean,
    ) => string,
  ): void
  showRun(id: string, isShown: boolean): void
  nameRun(id: string, name: string): void
  deleteRun(id: string): void
  /** Takes the settings of the run that saved a checkpoint, to continue from it. */
  goOnFrom(file: ShelvedCheckpoint): void
  downloadCheckpoint(file: ShelvedCheckpoint): void
  deleteCheckpoint(file: ShelvedCheckpoint): void
  /** Puts a file among the checkpoints of this browser, and continues from it. */
  uploadCheckpoint(file: File): void
  /** Enters the room again, with the settings in the address. */
  reenter(): void
  /** Keeps the server's room key in this tab and enters the room again. False where it cannot be kept. */
  giveRoomKey(roomKey: string): boolean
}

/** For tests and for looking at states: a page without a room behind it. */
export const idleActs: Acts = {
  set: () => undefined,
  rename: () => undefined,
  start: () => undefined,
  startWithout: () => undefined,
  continueRun: () => undefined,
  stop: () => undefined,
  reset: () => undefined,
  letIn: () => undefined,
  watch: () => undefined,
  handOver: () => undefined,
  remove: () => undefined,
  removeAndLock: () => undefined,
  pause: () => undefined,
  goOn: () => undefined,
  oneStep: () => undefined,
  continueWithout: () => undefined,
  save: () => undefined,
  query: async () => {
    throw new Error('look: this page has no room. Open the training page.')
  },
  give: () => undefined,
  damagedInLink: () => undefined,
  download: () => undefined,
  saveTrace: null,
  exportCsv: () => undefined,
  saveTimeline: () => undefined,
  saveLog: () => undefined,
  showRun: () => undefined,
  nameRun: () => undefined,
  deleteRun: () => undefined,
  goOnFrom: () => undefined,
  downloadCheckpoint: () => undefined,
  deleteCheckpoint: () => undefined,
  uploadCheckpoint: () => undefined,
  reenter: () => undefined,
  giveRoomKey: () => true,
}
