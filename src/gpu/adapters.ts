import { GpuError } from '../util/errors.ts'

const preferences = ['high-performance', 'low-power'] as const

/** errors: `gpu.unavailable`, saying whether the context is insecure or the browser has no WebGPU. */
function requireWebGpu(): GPU {
  if (!globalThis.isSecureContext) {
    throw new GpuError(
      'gpu.unavailable',
      `device: WebGPU needs a secure context, got ${globalThis.location?.origin}. Open the page over https, or on this machine as http://localhost.`,
    )
  }
  if (!globalThis.navigator?.gpu) {
    throw new GpuError(
      'gpu.unavailable',
      'device: this browser has no WebGPU. Use a current Chrome, Edge, Safari or Firefox (on Linux, Chrome may need chrome://flags/#enable-unsafe-webgpu), or compile for the device "cpu", which is slow.',
    )
  }
  return navigator.gpu
}

/** The first adapters of this browser that differ, at most `most`, the fastest first; none where no adapter comes up. errors: `gpu.unavailable`. */
export async function listAdapters(most: number = preferences.length): Promise<GPUAdapter[]> {
  const webgpu = requireWebGpu()
  const adapters: GPUAdapter[] = []
  for (const powerPreference of preferences) {
    if (adapters.length >= most) break
    const adapter = await webgpu.requestAdapter({ powerPreference })
    if (!adapter || adapters.some(({ info }) => nameOf(info) === nameOf(adapter.info))) continue
    adapters.push(adapter)
  }
  return adapters
}

export const nameOf = ({ vendor, architecture, device, description }: GPUAdapterInfo): string =>
  [vendor, architecture, device, description].filter(Boolean).join(' ')
