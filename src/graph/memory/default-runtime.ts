import { adapterLine } from '../../util/adapter-words.ts'
import { callLauncher, deviceName } from '../../util/call-launcher.ts'
import { calledAs } from '../../util/called-as.ts'
import {
  currentDevice,
  type Device,
  type DeviceSpec,
  device,
  formatDevice,
  type PlacedDevice,
  placedDevice,
  setCurrentDevice,
} from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { switchValue } from '../../util/switches.ts'
import { type ChosenDevice, chooseDevice } from './choose-device.ts'
import { type AnyRuntime, openRuntime, Runtime } from './runtime.ts'

const opened = new Map<string, Promise<AnyRuntime>>()
/** The device that was set; undefined: the switch decides, or else what is there. */
let defaultDevice: Device | undefined
let automatic: ChosenDevice | undefined

/**
 * Returns the page's or worker's runtime on a device; opens it at the first call, and again after it was lost.
 *
 * `why`: the device was taken, for people. errors: `gpu.unavailable`.
 */
export function runtimeOf(spec: DeviceSpec, why?: string): Promise<AnyRuntime> {
  const target = calledAs('runtimeOf', 'device', () => placedDevice(spec))
  const key = formatDevice(target)
  const known = opened.get(key)
  if (known) return known
  const opening = openRuntime(target, why)
  opened.set(key, opening)
  const forget = () => opened.delete(key)
  opening.then((runtime) => {
    callLauncher(deviceName, adapterLine(runtime.facts))
    if (runtime instanceof Runtime) runtime.gpu.lost.then(forget)
  }, forget)
  return opening
}

/** Returns the runtime of the default device of `compile`: that of WebGPU or of the CPU. errors: `gpu.unavailable`; `device.mismatch` for the device `reference`. */
export async function defaultRuntime(): Promise<Runtime> {
  const runtime = await defaultRuntimeOf()
  if (runtime instanceof Runtime) return runtime
  throw new TabringError(
    'device.mismatch',
    'defaultRuntime: the default device "reference" has no GPU. Call runtimeOf("reference"), or setDefaultDevice(null).',
  )
}

/**
 * Returns the default device of `compile`: what `setDefaultDevice` or the switch `device` chose; else the current WebGPU device, or the CPU once it
 * is known that there is no GPU.
 */
export const getDefaultDevice = (): PlacedDevice => {
  const choice = switchValue('device')
  const type = choice === 'auto' ? (automatic?.type ?? 'webgpu') : choice
  return placedDevice(defaultDevice ?? type)
}

/** Opens the default device, and sees before whether there is a GPU. errors: `gpu.unavailable`. */
export async function defaultRuntimeOf(): Promise<AnyRuntime> {
  const isAutomatic = !defaultDevice && switchValue('device') === 'auto'
  if (isAutomatic) automatic ??= await chooseDevice('auto')
  return runtimeOf(getDefaultDevice(), isAutomatic ? automatic?.why : '')
}

/** Sets the default device, like torch.set_default_device; null: what the switch `device` or the machine decides, as at the start. */
export function setDefaultDevice(spec: DeviceSpec | null): void {
  if (spec === null) {
    defaultDevice = undefined
    return
  }
  const { type, index = currentDevice() } = calledAs('setDefaultDevice', 'device', () =>
    device(spec),
  )
  defaultDevice = { type }
  if (type === 'webgpu') setCurrentDevice(index)
}

/** Makes a WebGPU device the current one; a device that is given elsewhere goes before it. errors: `config.invalid` for another type, or without an index. */
export function setDevice(spec: DeviceSpec): void {
  const { type, index } = device(spec)
  if (type !== 'webgpu') {
    throw new TabringError(
      'config.invalid',
      `gpu.setDevice: ${type} is not a WebGPU device. Call setDefaultDevice("${type}") to compute there.`,
    )
  }
  if (index === undefined) {
    throw new TabringError(
      'config.invalid',
      'gpu.setDevice: "webgpu" has no index. Pass a number, or "webgpu:1".',
    )
  }
  setCurrentDevice(index)
}
