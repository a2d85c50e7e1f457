/** The values of the look-inside switches; docs/reference/switches.md says what each does. */
export interface SwitchValues {
  /** 0 to 5 */
  readonly debug: number
  readonly naive: boolean
  /** Variant by op. */
  readonly variant: Readonly<Record<string, string>>
  readonly trace: boolean
  /** A share, 0 to 1. */
  readonly drop: number
  readonly delayMs: number
  readonly stallRank: number | null
  /** 1 to 8; null: as the way is long. */
  readonly lanes: number | null
  readonly cpu: boolean
  /** Numbers with commas; null: all. */
  readonly visibleDevices: string | null
  /** At least 1. */
  readonly logicalDevices: number
  /** At least 1; null: as many as a loader asks for. */
  readonly maxWorkers: number | null
}

export type SwitchName = keyof SwitchValues

/** What may be given: values, or texts as in an address. */
export type SwitchInputs = { readonly [Name in SwitchName]?: SwitchValues[Name] | string }
