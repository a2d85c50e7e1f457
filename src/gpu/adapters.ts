import { GpuError } from '../util/errors.ts'
import { webGpuAdvice } from '../util/webgpu-advice.ts'

/** What may give different adapters, the fastest first. The browser's software adapter comes last: it is the default only where it is alone. */
const requests: readonly GPURequestAdapterOptions[] = [
  { powerPreference: 'high-performance' },
  { powerPreference: 'low-power' },
  { forceFallbackAdapter: true },
]

/** errors: `gpu.unavailable`, saying whether there is no browser, the context is insecure or the browser has no WebGPU. */
function requireWebGpu(): GPU {
  if (globalThis.isSecureContext === undefined && !globalThis.navigator?.gpu) {
    throw new GpuError(
      'gpu.unavailable',
      'device: this runtime has no WebGPU (Node, for example). Run in a browser page (`npx tabring run` opens headless ones), or compile for the device "cpu" (setDefaultDevice("cpu")).',
    )
  }
  if (globalThis.isSecureContext === false) {
    throw new GpuError(
      'gpu.unavailable',
      `device: WebGPU needs a secure context, and ${globalThis.location?.origin} is not one. Open the page over https, or on this machine as http://localhost.`,
    )
  }
  if (!globalThis.navigator?.gpu) {
    throw new GpuError(
      'gpu.unavailable',
      `device: this browser has no WebGPU. ${webGpuAdvice().missing} Or use a current Chrome or Edge, or compile for the device "cpu".`,
    )
  }
  return navigator.gpu
}

/**
 * The first adapters of this browser that differ, at most `max`, the fastest first and a software one last; none where no adapter comes
 * up. errors: `gpu.unavailable`.
 */
export async function listAdapters(max: number = requests.length): Promise<GPUAdapter[]> {
  const webgpu = requireWebGpu()
  const adapters: GPUAdapter[] = []
  for (const request of requests) {
    if (adapters.length >= max) break
    // The first request can crash the browser's GPU process, which then starts again (seen with an H100 without a display).
    const adapter = (await webgpu.requestAdapter(request)) ?? (await webgpu.requestAdapter(request))
    if (!adapter || adapters.some((known) => isSame(known.info, adapter.info))) continue
    adapters.push(adapter)
  }
  return adapters
}

/** A browser that hides names gives all adapters the same ones; whether a CPU computes tells two apart even then. */
const isSame = (a: GPUAdapterInfo, b: GPUAdapterInfo): boolean =>
  nameOf(a) === nameOf(b) && isSoftware(a) === isSoftware(b)

export const nameOf = ({ vendor, architecture, device, description }: GPUAdapterInfo): string =>
  [vendor, architecture, device, description].filter(Boolean).join(' ')

/** Returns whether a CPU stands in for a GPU. Not all browsers tell of it, hence the names. */
export const isSoftware = ({
  isFallbackAdapter,
  architecture,
  description,
}: GPUAdapterInfo): boolean =>
  isFallbackAdapter === true ||
  /swiftshader|llvmpipe|lavapipe|warp|basic render/i.test(`${architecture} ${description}`)
