import { ArgumentTypeError, TabringError } from './errors.ts'

export type DeviceType = 'webgpu' | 'cpu'

/** A device on which programs run and tensors live: a WebGPU adapter of this browser, or the CPU (plain reference ops). */
export interface Device {
  readonly type: DeviceType
  /** Number of the WebGPU device. Undefined: the current device at the time of use. */
  readonly index?: number
}

/** An existing device, by number. */
export interface PlacedDevice extends Device {
  readonly index: number
}

/** All forms in which a device can be given. */
export type DeviceSpec = string | number | Device

let currentIndex = 0

/** The index of the WebGPU device that programs and `'webgpu'` take unless told. */
export const currentDevice = (): number => currentIndex

export function setCurrentDevice(index: number): void {
  currentIndex = index
}

/**
 * Returns the device that `spec` names: `'webgpu'`, `'webgpu:1'`, `'cpu'`, `1` (of WebGPU), `{ type, index }`, or (type, index).
 *
 * Numbers count visible devices. WebGPU device 0 is the browser's fastest adapter, followed by the low-power adapter and the software
 * adapter, if they are different ones. No index means the current device (`gpu.setDevice`) at the time of use, as with
 * torch.device('cuda').
 * errors: `config.invalid` for an unknown device; a TypeError for anything but a string, number or object.
 */
export function device(spec: DeviceSpec, index?: number): Device {
  const got = `${JSON.stringify(spec)}${index === undefined ? '' : ` and ${index}`}`
  const words = `device: expected "webgpu", "webgpu:<index>", "cpu", an index or { type, index }, got ${got}. Use one of these forms.`
  const refuse = (): never => {
    throw new TabringError('config.invalid', words)
  }
  const make = (type: unknown, at?: number): Device => {
    const isKnown = type === 'webgpu' || type === 'cpu'
    const isIndex = at === undefined || (Number.isSafeInteger(at) && at >= 0)
    // There is one CPU.
    if (!isKnown || !isIndex || (type === 'cpu' && at)) return refuse()
    if (type === 'cpu') return { type, index: 0 }
    return at === undefined ? { type } : { type, index: at }
  }
  if (typeof spec === 'number') return index === undefined ? make('webgpu', spec) : refuse()
  if (typeof spec === 'string') {
    const [, type, digits] = /^([a-z]+)(?::(\d+))?$/.exec(spec) ?? []
    if (digits !== undefined && index !== undefined) return refuse()
    return make(type, digits === undefined ? index : Number(digits))
  }
  if (spec === null || typeof spec !== 'object') throw new ArgumentTypeError(words)
  if (index !== undefined) return refuse()
  return make(spec.type, spec.index)
}

/** The device that `spec` means now. errors: as device. */
export function placedDevice(spec: DeviceSpec): PlacedDevice {
  const { type, index = currentIndex } = device(spec)
  return { type, index }
}

/** Returns the device as text: `webgpu:0`, `webgpu` or `cpu`. */
export const formatDevice = ({ type, index }: Device): string =>
  type === 'cpu' || index === undefined ? type : `${type}:${index}`

export const sameDevice = (a: PlacedDevice, b: PlacedDevice): boolean =>
  a.type === b.type && a.index === b.index
