import type { DeviceChoice } from './device.ts'

/** Values of the debug switches; docs/reference/switches.md says what each one does. */
export interface SwitchValues {
  /** 0 to 5 */
  readonly debug: number
  readonly naive: boolean
  /** Variant per op. */
  readonly variant: Readonly<Record<string, string>>
  readonly trace: boolean
  /** Fraction from 0 to 1. */
  readonly drop: number
  readonly delayMs: number
  readonly stallRank: number | null
  /** 1 to 8; null: chosen by round-trip time. */
  readonly lanes: number | null
  readonly device: DeviceChoice
  /** Comma-separated numbers; null: all. */
  readonly visibleDevices: string | null
  /** At least 1. */
  readonly logicalDevices: number
  /** Bytes; null: no cap. */
  readonly memoryCap: number | null
  /** 1 to 64; null: the machine's cores, divided by the ranks of this browser. */
  readonly numThreads: number | null
  readonly relaxedMadd: boolean
  /** At least 1; null: as many as a loader asks for. */
  readonly maxWorkers: number | null
}

export type SwitchName = keyof SwitchValues

/** Accepted inputs: values, or their text form as in a page address. */
export type SwitchInputs = { readonly [Name in SwitchName]?: SwitchValues[Name] | string }
