import { clipped } from '../../util/clipped.ts'
import { GpuError, messageOf } from '../../util/errors.ts'
import { nextTask } from '../../util/next-task.ts'
import { relaxedFeature } from '../device.ts'
import { startThreads } from '../num-threads.ts'
import { BufferMemory, type WasmBuffer } from './buffer.ts'
import { type RecordedCommand, WasmCommandEncoder, WasmQuerySet } from './commands.ts'
import type { WasmHeap } from './heap.ts'
import { type CompileKernel, makePipeline, WasmBindGroup, type WasmPipeline } from './pipeline.ts'
import { WorkQueue } from './queue.ts'
import { Threads } from './threads.ts'

/** Half of what 32-bit addresses reach: differences of offsets stay signed numbers. */
const largestBuffer = 2 ** 31

const limits = {
  maxBufferSize: largestBuffer,
  maxStorageBufferBindingSize: largestBuffer,
  maxComputeWorkgroupStorageSize: 32_768,
  maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256,
  maxComputeWorkgroupsPerDimension: 65_535,
  maxStorageBuffersPerShaderStage: 16,
} as const

/** units: ms. */
const breathAfterMs = 20

class UncapturedError extends Event {
  readonly error: Error

  constructor(error: Error) {
    super('uncapturederror')
    this.error = error
  }
}

interface ShaderModule {
  readonly code: string
  getCompilationInfo(): Promise<{ readonly messages: readonly [] }>
}

/**
 * What this library uses of a GPUDevice, computed by WebAssembly on the CPU: the same shaders, in one memory.
 *
 * Commands are checked when they are submitted, and work is done in the order of submits between the tasks of this page, worker or process.
 * Errors are events, as on a GPU, except that a buffer without memory throws.
 */
export class WasmDevice extends EventTarget {
  readonly limits = limits
  readonly features: ReadonlySet<string>
  readonly queue: WasmDeviceQueue
  readonly lost: Promise<{ reason: string; message: string }>
  readonly #memory: BufferMemory
  readonly #compile: CompileKernel
  readonly #work = new WorkQueue((error, command) => {
    const { label } = command as RecordedCommand
    this.#report(`kernel "${label}" failed: ${messageOf(error)}.`)
  })
  #leave: () => void = () => undefined
  #lose: (info: { reason: string; message: string }) => void = () => undefined
  readonly #threads: Threads
  /** The newest kernel that is compiled: one after the other, so that other tasks get a turn between them. */
  #compiling: Promise<unknown> = Promise.resolve()
  #breathedMs = 0

  constructor(heap: WasmHeap, compile: CompileKernel, isRelaxed = false) {
    super()
    this.features = new Set(['timestamp-query', ...(isRelaxed ? [relaxedFeature] : [])])
    this.#memory = new BufferMemory(heap, this.#work)
    this.#threads = new Threads(heap)
    this.#compile = isRelaxed
      ? (wgsl, options) => compile(wgsl, { ...options, isRelaxed })
      : compile
    this.queue = new WasmDeviceQueue(this.#work, (message) => this.#report(message))
    this.lost = new Promise((resolve) => {
      this.#lose = resolve
    })
  }

  get adapterInfo() {
    const { expected: count, excess, problem } = this.#threads
    const threads = excess ?? `${count} thread${count === 1 ? '' : 's'}`
    // A room takes so much of each member's facts.
    const why = problem ? `; ${clipped(problem)}` : ''
    const description = `CPU in WebAssembly, ${threads}${why}`
    return { vendor: '', architecture: 'wasm', device: '', description }
  }

  /** Starts the threads that were asked for. */
  startThreads(): void {
    this.#leave = startThreads(this.#threads)
  }

  #report(message: string): void {
    const error = new GpuError(
      'gpu.validation',
      `device: ${message} Later results are not valid. Stop the run and report this error.`,
    )
    this.dispatchEvent(new UncapturedError(error))
  }

  /** errors: `gpu.limit`. */
  createBuffer(descriptor: GPUBufferDescriptor): WasmBuffer {
    return this.#memory.allocate(descriptor)
  }

  createQuerySet({ count }: GPUQuerySetDescriptor): WasmQuerySet {
    return new WasmQuerySet(count)
  }

  createShaderModule({ code }: GPUShaderModuleDescriptor): ShaderModule {
    return { code, getCompilationInfo: async () => ({ messages: [] }) }
  }

  createBindGroupLayout(): object {
    return {}
  }

  createPipelineLayout(): object {
    return {}
  }

  createBindGroup({ entries }: { entries: Iterable<GPUBindGroupEntry> }): WasmBindGroup {
    return new WasmBindGroup(entries)
  }

  /** errors: those of the compiler. */
  async createComputePipelineAsync({
    label = '',
    compute: { module },
  }: {
    label?: string
    compute: { module: ShaderModule }
  }): Promise<WasmPipeline> {
    const { memory, isShared } = this.#memory.heap
    const compiling = this.#compiling.then(async () => {
      if (performance.now() - this.#breathedMs > breathAfterMs) {
        await nextTask()
        this.#breathedMs = performance.now()
      }
      return this.#compile(module.code, { isShared })
    })
    this.#compiling = compiling.catch(() => undefined)
    const kernel = await compiling
    this.#threads.needScratch(kernel.scratchBytes)
    const pipeline = makePipeline(label, kernel, memory)
    this.#threads.load(pipeline)
    return pipeline
  }

  createCommandEncoder(): WasmCommandEncoder {
    return new WasmCommandEncoder(this.#threads)
  }

  /** What has no memory throws, and other errors are events. */
  pushErrorScope(): void {
    // Nothing to keep.
  }

  async popErrorScope(): Promise<null> {
    return null
  }

  destroy(): void {
    this.#work.close()
    this.#leave()
    this.#threads.stop()
    this.#lose({ reason: 'destroyed', message: 'device was destroyed' })
  }
}

class WasmDeviceQueue {
  readonly #work: WorkQueue
  readonly #report: (message: string) => void

  constructor(work: WorkQueue, report: (message: string) => void) {
    this.#work = work
    this.#report = report
  }

  /** What was recorded is refused as a whole where one command is wrong. */
  submit(recordings: readonly (readonly RecordedCommand[])[]): void {
    for (const commands of recordings) {
      const wrong = commands.find(({ problem }) => problem)
      if (wrong) this.#report(`"${wrong.label}" was refused: ${wrong.problem}.`)
      else this.#work.push(commands)
    }
  }

  writeBuffer(
    buffer: WasmBuffer,
    offset: number,
    data: ArrayBuffer,
    dataOffset = 0,
    size = data.byteLength - dataOffset,
  ): void {
    const isTooLong = offset + size > buffer.size
    const problem = isTooLong ? `it passes the end of "${buffer.label}"` : buffer.problem
    if (problem) {
      this.#report(`a write was refused: ${problem}.`)
      return
    }
    const given = new Uint8Array(data, dataOffset, size)
    const bytes = this.#work.isIdle ? given : given.slice()
    this.#work.after(() => buffer.bytes(offset, size).set(bytes))
  }

  onSubmittedWorkDone(): Promise<void> {
    return this.#work.done()
  }
}
