import type { SettingKey } from './settings.ts'

/** What a person can do on the page. */
export interface Acts {
  set(key: SettingKey, value: string): void
  rename(name: string): void
  start(): void
  stop(): void
  download(): void
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
  reenter: () => undefined,
  useCpu: () => undefined,
}
