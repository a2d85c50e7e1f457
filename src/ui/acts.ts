import type { LookAnswer, ShelvedCheckpoint } from '../worker/api.ts'
import type { SettingKey } from './settings.ts'

/** What a person can do on the page. */
export interface Acts {
  set(key: SettingKey, value: string): void
  rename(name: string): void
  start(): void
  stop(): void
  /** Asks all ranks to pause behind one step, and ends that again. */
  pause(): void
  goOn(): void
  /** Asks the compute worker for a demo's look. */
  look(name: string, input?: unknown): Promise<LookAnswer>
  /** Keeps what a person gave for the next run. */
  give(bytes: Uint8Array<ArrayBuffer>): void
  download(): void
  /** Saves the spans of the run as a Chrome trace; null where nobody asked for any. */
  saveTrace: (() => void) | null
  /** Saves the points of the runs that the chart shows as CSV. */
  exportCsv(): void
  /** Saves the sampled steps of all ranks as a Chrome trace. */
  saveTimeline(): void
  showRun(id: string, isShown: boolean): void
  nameRun(id: string, name: string): void
  deleteRun(id: string): void
  /** Takes the settings of the run that saved a checkpoint, to go on from it. */
  goOnFrom(file: ShelvedCheckpoint): void
  downloadCheckpoint(file: ShelvedCheckpoint): void
  deleteCheckpoint(file: ShelvedCheckpoint): void
  /** Puts a file among the checkpoints of this browser, and goes on from it. */
  uploadCheckpoint(file: Blob): void
  /** Enters the room again, with the settings in the address. */
  reenter(): void
  /** Computes on the CPU from here on, which is slow. */
  useCpu(): void
}

/** For tests and for looking at states: a page without a room behind it. */
export const idleActs: Acts = {
  set: () => undefined,
  rename: () => undefined,
  start: () => undefined,
  stop: () => undefined,
  pause: () => undefined,
  goOn: () => undefined,
  look: async () => {
    throw new Error('look: there is no room behind this page.')
  },
  give: () => undefined,
  download: () => undefined,
  saveTrace: null,
  exportCsv: () => undefined,
  saveTimeline: () => undefined,
  showRun: () => undefined,
  nameRun: () => undefined,
  deleteRun: () => undefined,
  goOnFrom: () => undefined,
  downloadCheckpoint: () => undefined,
  deleteCheckpoint: () => undefined,
  uploadCheckpoint: () => undefined,
  reenter: () => undefined,
  useCpu: () => undefined,
}
