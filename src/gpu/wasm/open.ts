import type { DeviceType } from '../../util/device.ts'
import { GpuError } from '../../util/errors.ts'
import { log } from '../../util/log.ts'
import { switchValue } from '../../util/switches.ts'
import { compileKernel } from '../../wasm/compile-kernel.ts'
import { type AdapterFacts, findAdapters, Gpu } from '../device.ts'
import { shareCores } from '../num-threads.ts'
import { WasmDevice } from './device.ts'
import { WasmHeap } from './heap.ts'
import type { CompileKernel } from './pipeline.ts'
import { hasRelaxedMadd, missingVectors, type NoVectors } from './vectors.ts'

/**
 * Opens the CPU of this page, worker or process as a device that runs the same shaders as a GPU, compiled to WebAssembly.
 *
 * `why`: for people who see it in place of a GPU. errors: `gpu.unavailable`, where the engine has no vector instructions or the page forbids WebAssembly; `gpu.limit` where no memory can be had.
 */
export async function openWasm(compile: CompileKernel = compileKernel, why = ''): Promise<Gpu> {
  const isWanted = switchValue('relaxedMadd')
  const isRelaxed = isWanted && hasRelaxedMadd()
  const madd = isRelaxed
    ? 'with relaxed_madd'
    : isWanted
      ? 'without relaxed_madd, which this engine lacks'
      : ''
  const device = await prepared(compile, isRelaxed)
  const { architecture, vendor } = device.adapterInfo
  const facts: AdapterFacts = {
    vendor,
    architecture,
    // Threads may turn out not to begin.
    get description() {
      return [device.adapterInfo.description, madd, why].filter(Boolean).join('; ')
    },
    isSoftware: true,
    hasF16: false,
    hasSubgroups: false,
    hasTimestamps: true,
  }
  log(1, 'device', () => `cpu: ${facts.description}`)
  // It has what this library uses of a GPUDevice.
  return new Gpu(device as unknown as GPUDevice, facts, { type: 'cpu', index: 0 })
}

async function prepared(compile: CompileKernel, isRelaxed: boolean): Promise<WasmDevice> {
  const missing = await missingVectors()
  if (missing) throw await withoutVectors(missing)
  const device = new WasmDevice(new WasmHeap(), compile, isRelaxed)
  device.lost.then(await shareCores())
  device.startThreads()
  return device
}

/** Each way out is a sentence: the page shows them one a line. */
async function withoutVectors({ isForbidden, cause }: NoVectors): Promise<GpuError> {
  const isPage = 'location' in globalThis
  const [where, way] = isForbidden
    ? ["this page's content security policy forbids", "Allow 'wasm-unsafe-eval' in it."]
    : isPage
      ? ['this browser does not have', 'Use a newer browser.']
      : ['this process does not have', 'Start Node without flags such as --jitless.']
  const device = (type: DeviceType) =>
    isPage ? `device=${type} in the address of the page` : `the device "${type}"`
  const [adapter] = await findAdapters(1).catch(() => [])
  const others = [
    ...(adapter ? [`Or choose ${device('webgpu')}: an adapter is there.`] : []),
    `Or choose ${device('reference')}: that is slow.`,
  ]
  return new GpuError(
    'gpu.unavailable',
    `device: "cpu" needs WebAssembly with vector instructions (SIMD), which ${where}. ${way} ${others.join(' ')}`,
    { cause },
  )
}
