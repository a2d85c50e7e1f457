import { TabringError } from './errors.ts'

export type DeviceType = 'webgpu' | 'cpu'

/** Where programs run and tensors live: an adapter of this browser, or the plain references on the CPU. */
export interface Device {
  readonly type: DeviceType
  readonly index: number
}

/** All forms in which a device may be given. */
export type DeviceSpec = string | number | { readonly type: DeviceType; readonly index?: number }

/**
 * Returns the device that `spec` means: `'webgpu'`, `'webgpu:1'`, `'cpu'`, `1` (of WebGPU), `{ type, index }`, or (type, index).
 *
 * WebGPU device 0 is the browser's fastest adapter, 1 the one that saves power where that is another. No index means 0.
 * errors: `config.invalid` for anything else.
 */
export function device(spec: DeviceSpec, index?: number): Device {
  const refuse = (): never => {
    throw new TabringError(
      'config.invalid',
      `device: expected "webgpu", "webgpu:<index>", "cpu", an index or { type, index }, got ${JSON.stringify(spec)}${index === undefined ? '' : ` and ${index}`}. Name one of these.`,
    )
  }
  const make = (type: unknown, at = 0): Device => {
    const isKnown = type === 'webgpu' || type === 'cpu'
    // There is one CPU.
    if (!isKnown || !Number.isSafeInteger(at) || at < 0 || (type === 'cpu' && at > 0))
      return refuse()
    return { type, index: at }
  }
  if (typeof spec === 'number') return index === undefined ? make('webgpu', spec) : refuse()
  if (typeof spec === 'string') {
    const [, type, digits] = /^([a-z]+)(?::(\d+))?$/.exec(spec) ?? []
    if (digits !== undefined && index !== undefined) return refuse()
    return make(type, digits === undefined ? index : Number(digits))
  }
  if (spec === null || typeof spec !== 'object' || index !== undefined) return refuse()
  return make(spec.type, spec.index)
}

/** `webgpu:0`, `cpu` */
export const formatDevice = ({ type, index }: Device): string =>
  type === 'cpu' ? type : `${type}:${index}`

export const sameDevice = (a: Device, b: Device): boolean =>
  a.type === b.type && a.index === b.index
