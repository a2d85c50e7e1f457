import { GpuError, messageOf } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'
import { compileKernel } from '../../wasm/compile-kernel.ts'
import { type AdapterFacts, Gpu } from '../device.ts'
import { WasmDevice } from './device.ts'
import { WasmHeap } from './heap.ts'
import type { CompileKernel } from './pipeline.ts'

/** A module with one vector instruction. */
const vectorModule = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  ...[1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0],
  ...[10, 10, 1, 8, 0, 0x41, 0, 0xfd, 0x0f, 0xfd, 0x62, 0x0b],
)

/**
 * Opens the CPU of this page, worker or process as a device that runs the same shaders as a GPU, compiled to WebAssembly.
 *
 * errors: `gpu.unavailable`, where the engine has no vector instructions, the page forbids WebAssembly, or no memory can be had.
 */
export async function openWasm(compile: CompileKernel = compileKernel): Promise<Gpu> {
  const device = await prepared(compile)
  const { architecture, description, vendor } = device.adapterInfo
  const facts: AdapterFacts = {
    vendor,
    architecture,
    description,
    isSoftware: true,
    hasF16: false,
    hasSubgroups: false,
    hasTimestamps: true,
  }
  tell(1, 'device', () => `cpu: ${description}`)
  // It has what this library uses of a GPUDevice.
  return new Gpu(device as unknown as GPUDevice, facts, { type: 'cpu', index: 0 })
}

async function prepared(compile: CompileKernel): Promise<WasmDevice> {
  try {
    await WebAssembly.compile(vectorModule)
    const device = new WasmDevice(new WasmHeap(), compile)
    await device.startThreads()
    return device
  } catch (cause) {
    throw new GpuError(
      'gpu.unavailable',
      `device: "cpu" needs WebAssembly with vector instructions (SIMD), which this page cannot use (${messageOf(cause)}). Use a newer browser, allow 'wasm-unsafe-eval' in the page's content security policy, or compile for the device "reference", which is slow.`,
      { cause },
    )
  }
}
