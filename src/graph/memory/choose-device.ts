import { isSoftware, nameOf } from '../../gpu/adapters.ts'
import { findAdapters } from '../../gpu/device.ts'
import type { DeviceChoice, DeviceType } from '../../util/device.ts'
import { switchValue } from '../../util/switches.ts'

/** A device, and why it was taken, for people; empty where a person chose it. */
export interface ChosenDevice {
  readonly type: DeviceType
  readonly why: string
}

/**
 * Returns what `choice` means in this page, worker or process: for `auto` WebGPU where there is a GPU. Where there is a software adapter only,
 * or none, the CPU, whatever the model: docs/how-it-works/devices.md has the times of both. WebGPU too with several logical devices.
 */
export async function chooseDevice(choice: DeviceChoice): Promise<ChosenDevice> {
  if (choice !== 'auto') return { type: choice, why: '' }
  // Devices that were multiplied are WebGPU's: who asks for them places parts of a model on them.
  if (switchValue('logicalDevices') > 1) return { type: 'webgpu', why: '' }
  const gpu = await findGpu()
  if (gpu.isThere) return { type: 'webgpu', why: '' }
  // Without any adapter the CPU's own error says what is missing.
  if (!gpu.hasAdapter) return { type: 'cpu', why: gpu.why }
  const { missingVectors } = await import('../../gpu/wasm/vectors.ts')
  const missing = await missingVectors()
  if (!missing) return { type: 'cpu', why: gpu.why }
  const why = missing.isForbidden
    ? 'no GPU, and the content security policy forbids WebAssembly'
    : 'no GPU, and no vector instructions in WebAssembly'
  return { type: 'webgpu', why }
}

async function findGpu(): Promise<{ isThere: boolean; hasAdapter: boolean; why: string }> {
  try {
    const [first] = await findAdapters(1)
    if (!first) return { isThere: false, hasAdapter: false, why: 'no WebGPU adapter' }
    const { info } = first.adapter
    const why = `no GPU, only the adapter ${nameOf(info)}`
    return { isThere: !isSoftware(info), hasAdapter: true, why }
  } catch {
    return { isThere: false, hasAdapter: false, why: 'no WebGPU' }
  }
}
