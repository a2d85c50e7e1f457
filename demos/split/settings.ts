/** What decides how the network is split. */
export interface Settings {
  readonly devices: number
  readonly schedule: ScheduleName
  /** Samples of a micro-batch. */
  readonly split: number
}

export const schedules = { '1f1b': '1F1B', gpipe: 'GPipe' } as const
export type ScheduleName = keyof typeof schedules

/** Samples of a step. */
export const batch = 120

export const choices = {
  devices: [2, 3, 4],
  schedule: Object.keys(schedules) as ScheduleName[],
  /** Sizes that divide the batch, the largest first: to the right there are more micro-batches. */
  split: [120, 60, 40, 30, 24, 20, 15, 12, 10, 8, 6, 5],
} as const

export const defaults: Settings = { devices: 2, schedule: '1f1b', split: 30 }

/** Settings from an address, and what of it is refused. */
export function settingsIn(query: string): { settings: Settings; refused: string[] } {
  const given = new URLSearchParams(query)
  const refused: string[] = []
  const read = <T extends string | number>(key: keyof Settings, own: readonly T[], usual: T): T => {
    const text = given.get(key)
    const found = own.find((one) => String(one) === text)
    if (text !== null && found === undefined)
      refused.push(`${key}=${text.slice(0, 20)}: expected ${own.join(', ')}`)
    return found ?? usual
  }
  const settings = {
    devices: read('devices', choices.devices, defaults.devices),
    schedule: read('schedule', choices.schedule, defaults.schedule),
    split: read('split', choices.split, defaults.split),
  }
  return { settings, refused }
}

/** What is not the default, as an address has it. */
export const queryOf = (settings: Settings): [string, string][] =>
  Object.entries(settings)
    .filter(([key, value]) => value !== defaults[key as keyof Settings])
    .map(([key, value]) => [key, String(value)])
