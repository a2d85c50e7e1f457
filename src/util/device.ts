import { ArgumentTypeError, TabringError } from './errors.ts'
import { quoted } from './kind-of.ts'

export type DeviceType = 'webgpu' | 'cpu' | 'reference'

/**
 * A device on which programs run and tensors live: a WebGPU adapter of this browser; the CPU, which runs the same shaders as WebAssembly; or
 * `reference`, the plain definitions of the ops one after another in float64, for tests and for inspecting values.
 */
export interface Device {
  readonly type: DeviceType
  /** Number of the WebGPU device. Undefined: the current device at the time of use. */
  readonly index?: number
  /** The rank whose device it is. Undefined: the rank that uses it. */
  readonly rank?: number
}

/** An existing device, by number. */
export interface PlacedDevice extends Device {
  readonly index: number
}

/** All forms in which a device can be given. */
export type DeviceSpec = string | number | Device

/** All types. */
export const deviceTypes: readonly DeviceType[] = ['webgpu', 'cpu', 'reference']

/** What a person may choose; `auto`: a GPU where there is one, else the CPU. */
export type DeviceChoice = DeviceType | 'auto'
export const deviceChoices: readonly DeviceChoice[] = ['auto', ...deviceTypes]

/** Max number of threads of a device. */
export const maxThreads = 64

/** Returns whether no adapter is needed. */
export const isOfHost = (device: DeviceChoice): boolean =>
  device === 'cpu' || device === 'reference'

const isDeviceType = (type: unknown): type is DeviceType =>
  (deviceTypes as readonly unknown[]).includes(type)

let currentIndex = 0

/** The index of the WebGPU device that programs and `'webgpu'` take by default. */
export const currentDevice = (): number => currentIndex

export function setCurrentDevice(index: number): void {
  currentIndex = index
}

/**
 * Returns the device that `spec` names: `'webgpu'`, `'webgpu:1'`, `'cpu'`, `'reference'`, `1` (of WebGPU), `{ type, index }`, or (type, index); of another
 * rank `'rank:1/webgpu:0'`.
 *
 * Numbers count visible devices. WebGPU device 0 is the browser's fastest adapter, followed by the low-power adapter and the software
 * adapter, if they are different ones. No index means the current device (`gpu.setDevice`) at the time of use, as with
 * torch.device('cuda').
 * errors: `config.invalid` for an unknown device; a TypeError for anything but a string, number or object.
 */
export function device(spec: DeviceSpec, index?: number): Device {
  const words = () =>
    `device: spec must be "webgpu", "webgpu:<index>", "cpu", "reference" (both without an index), "rank:<rank>/webgpu:<index>", an index or { type, index }, got ${quoted(spec)}${index === undefined ? '' : ` and ${quoted(index)}`}. Use one of these forms, or none (setDefaultDevice(null)) for a GPU or else the CPU.`
  const refuse = (): never => {
    throw new TabringError('config.invalid', words())
  }
  const make = (type: unknown, at?: number, rank?: number): Device => {
    const isKnown = isDeviceType(type)
    const isIndex = [at, rank].every((n) => n === undefined || (Number.isSafeInteger(n) && n >= 0))
    // Another rank's current device is not known here.
    if (rank !== undefined && type === 'webgpu' && at === undefined) return refuse()
    // The others have one each.
    if (!isKnown || !isIndex || (type !== 'webgpu' && at)) return refuse()
    const owner = rank === undefined ? {} : { rank }
    if (type !== 'webgpu') return { type, index: 0, ...owner }
    return at === undefined ? { type } : { type, index: at, ...owner }
  }
  if (typeof spec === 'number') return index === undefined ? make('webgpu', spec) : refuse()
  if (typeof spec === 'string') {
    const [, rank, type, digits] = /^(?:rank:(\d+)\/)?([a-z]+)(?::(\d+))?$/.exec(spec) ?? []
    if (digits !== undefined && index !== undefined) return refuse()
    const numberOf = (text: string | undefined) => (text === undefined ? undefined : Number(text))
    return make(type, numberOf(digits) ?? index, numberOf(rank))
  }
  if (spec === null || typeof spec !== 'object') throw new ArgumentTypeError(words())
  if (index !== undefined) return refuse()
  return make(spec.type, spec.index, spec.rank)
}

/** The device that `spec` means now. errors: as device. */
export function placedDevice(spec: DeviceSpec): PlacedDevice {
  const { index = currentIndex, ...rest } = device(spec)
  return { ...rest, index }
}

/** Returns the device as text: `webgpu:0`, `webgpu`, `cpu` or `rank:1/webgpu:0`. */
export const formatDevice = (spec: Device): string => {
  const { type, index, rank } = isDeviceType(spec?.type) ? spec : device(spec)
  const own = type !== 'webgpu' || index === undefined ? type : `${type}:${index}`
  return rank === undefined ? own : `rank:${rank}/${own}`
}

export const sameDevice = (a: PlacedDevice, b: PlacedDevice): boolean =>
  sameHardware(a, b) && a.rank === b.rank

/** Returns whether they are one device where they are on one rank. */
export const sameHardware = (a: PlacedDevice, b: PlacedDevice): boolean =>
  a.type === b.type && a.index === b.index
