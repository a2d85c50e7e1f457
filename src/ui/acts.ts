import type { SettingKey } from './settings.ts'

/** What a person can do on the page. */
export interface Acts {
  set(key: SettingKey, value: string): void
  rename(name: string): void
  start(): void
  stop(): void
  download(): void
  /** Saves the spans of the run as a Chrome trace; null where nobody asked for any. */
  saveTrace: (() => void) | null
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
  download: () => undefined,
  saveTrace: null,
  reenter: () => undefined,
  useCpu: () => undefined,
}
