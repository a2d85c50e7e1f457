import { isHierarchy } from '../../src/peer/algorithms/hierarchical.ts'
import { algorithms } from '../../src/peer/algorithms/operations.ts'

/** What decides a run: the same settings give the same messages at the same times. */
export interface RingSettings {
  readonly ranks: number
  /** Elements of each rank's array, float32. */
  readonly length: number
  /** One way. */
  readonly latencyMs: number
  /** What a rank can send, over all of its links together. units: 10^6 bytes/s. */
  readonly rateMb: number
  /** Of messages. */
  readonly lossPercent: number
  readonly algorithm: (typeof algorithmChoices)[number]
  /** On how many machines the ranks are; 1: each is on its own. */
  readonly machines: number
  readonly seed: number
  /** 1: one bit of one message is turned on its way. */
  readonly flip: number
}

export const algorithmChoices = ['auto', ...algorithms] as const

export const defaultSettings: RingSettings = {
  ranks: 4,
  length: 8,
  latencyMs: 20,
  rateMb: 10,
  lossPercent: 0,
  algorithm: 'ring',
  machines: 1,
  seed: 1,
  flip: 0,
}

type NumberKey = Exclude<keyof RingSettings, 'algorithm'>

/** A number that a person sets: its bounds, and the stops of its slider. */
export interface NumberSetting {
  readonly key: NumberKey
  readonly label: string
  readonly unit: string
  readonly stops: readonly number[]
  readonly isWhole: boolean
}

const upTo = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

export const numberSettings: readonly NumberSetting[] = [
  { key: 'ranks', label: 'Ranks', unit: '', stops: upTo(2, 16), isWhole: true },
  {
    key: 'length',
    label: 'Elements',
    unit: 'elements',
    stops: [
      1, 2, 4, 8, 16, 32, 64, 100, 250, 1000, 2500, 5000, 10_000, 25_000, 50_000, 70_000, 100_000,
    ],
    isWhole: true,
  },
  {
    key: 'latencyMs',
    label: 'Latency',
    unit: 'ms one way',
    stops: [0, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200],
    isWhole: false,
  },
  {
    key: 'rateMb',
    label: 'Rate',
    unit: 'MB/s per rank',
    stops: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100],
    isWhole: false,
  },
  {
    key: 'lossPercent',
    label: 'Loss',
    unit: '% of messages',
    stops: [0, 0.1, 0.2, 0.5, 1, 2, 5, 10],
    isWhole: false,
  },
  { key: 'machines', label: 'Machines', unit: '', stops: [1, 2, 3, 4], isWhole: true },
  { key: 'seed', label: 'Seed', unit: '', stops: upTo(1, 20), isWhole: true },
  { key: 'flip', label: 'Flip one bit', unit: '', stops: [0, 1], isWhole: true },
]

/** By rank: which machine it is on; undefined where each is on its own. Neighbours in the ring share one. */
export function machinesOf({ ranks, machines }: RingSettings): number[] | undefined {
  if (machines < 2 || machines >= ranks) return undefined
  return Array.from({ length: ranks }, (_, rank) => Math.floor((rank * machines) / ranks))
}

/** Whether some ranks share a machine and others do not. */
export const hasMachines = (settings: RingSettings): boolean => isHierarchy(machinesOf(settings))

/** What holds of `wanted`: numbers within their bounds, and machines where the algorithm needs them. */
export function settle(wanted: RingSettings): RingSettings {
  const settled = { ...wanted }
  for (const { key, stops, isWhole } of numberSettings) {
    const value = isWhole ? Math.round(wanted[key]) : wanted[key]
    settled[key] = Math.min(stops.at(-1)!, Math.max(stops[0], value))
  }
  if (settled.algorithm !== 'hierarchical') return settled
  if (settled.ranks < 3) return { ...settled, algorithm: 'auto' }
  return hasMachines(settled) ? settled : { ...settled, machines: 2 }
}

/** The settings in an address; `refused` names those with an invalid value. */
export function settingsIn(query: string): { settings: RingSettings; refused: string[] } {
  const given = new URLSearchParams(query)
  const wanted: { -readonly [Key in keyof RingSettings]: RingSettings[Key] } = {
    ...defaultSettings,
  }
  const refused: string[] = []
  for (const { key, stops, isWhole } of numberSettings) {
    const text = given.get(key)
    if (text === null) continue
    const value = Number(text)
    const isWithin = value >= stops[0] && value <= stops.at(-1)!
    if (text.trim() === '' || !isWithin || (isWhole && !Number.isInteger(value)))
      refused.push(
        `${key}=${text}: expected ${isWhole ? 'a whole number from ' : ''}${stops[0]} to ${stops.at(-1)}`,
      )
    else wanted[key] = value
  }
  const algorithm = given.get('algorithm')
  const known = algorithmChoices.find((one) => one === algorithm)
  if (known) wanted.algorithm = known
  else if (algorithm !== null)
    refused.push(`algorithm=${algorithm}: expected ${algorithmChoices.join(', ')}`)
  return { settings: settle(wanted), refused }
}

/** The address's query for settings, without those that are the default's; empty for the default. Inverse: `settingsIn`. */
export function queryOf(settings: RingSettings): string {
  const query = new URLSearchParams()
  for (const [key, value] of Object.entries(settings))
    if (value !== defaultSettings[key as keyof RingSettings]) query.set(key, String(value))
  const text = query.toString()
  return text && `?${text}`
}
