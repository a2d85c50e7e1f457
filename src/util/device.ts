import { ArgumentTypeError, TabringError } from './errors.ts'

export type DeviceType = 'webgpu' | 'cpu'

/** Where programs run and tensors live: an adapter of this browser, or the plain references on the CPU. */
export interface Device {
  readonly type: DeviceType
  /** Undefined: the WebGPU device that is current when it is used. */
  readonly index?: number
}

/** A device that is there, by number. */
export interface PlacedDevice extends Device {
  readonly index: number
}

/** All forms in which a device may be given. */
export type DeviceSpec = string | number | Device

let currentIndex = 0

/** The index of the WebGPU device that programs and `'webgpu'` take unless told. */
export const currentDevice = (): number => currentIndex

export function setCurrentDevice(index: number): void {
  currentIndex = index
}

/**
 * Returns the device that `spec` means: `'webgpu'`, `'webgpu:1'`, `'cpu'`, `1` (of WebGPU), `{ type, index }`, or (type, index).
 *
 * WebGPU device 0 is the browser's fastest adapter, then come the one that saves power and the browser's software one, where they are
 * others, of those that are visible. No index means the current one (`gpu.setDevice`) whenever the device is used, as with torch.device('cuda').
 * errors: `config.invalid` for anything else; a TypeError for what is no text, number or object.
 */
export function device(spec: DeviceSpec, index?: number): Device {
  const got = `${JSON.stringify(spec)}${index === undefined ? '' : ` and ${index}`}`
  const words = `device: expected "webgpu", "webgpu:<index>", "cpu", an index or { type, index }, got ${got}. Name one of these.`
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

/** `webgpu:0`, `webgpu`, `cpu` */
export const formatDevice = ({ type, index }: Device): string =>
  type === 'cpu' || index === undefined ? type : `${type}:${index}`

export const sameDevice = (a: PlacedDevice, b: PlacedDevice): boolean =>
  a.type === b.type && a.index === b.index
