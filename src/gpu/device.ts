import { inUnitsOf } from '../util/byte-units.ts'
import { clipped } from '../util/clipped.ts'
import { formatDevice, type PlacedDevice } from '../util/device.ts'
import { GpuError, messageOf } from '../util/errors.ts'
import { log } from '../util/log.ts'
import { checkNumber } from '../util/options.ts'
import { fixedSwitch, switchValue } from '../util/switches.ts'
import { visibleNumbers } from '../util/visible-devices.ts'
import { webGpuAdvice } from '../util/webgpu-advice.ts'
import { isSoftware, listAdapters, nameOf } from './adapters.ts'
import { bufferUsage } from './usage.ts'

/** Names of WebGPU, for programs whose TypeScript has none of its types; they add nothing to the types where there are some. */
declare global {
  interface GPUAdapter {}
  interface GPUAdapterInfo {}
  interface GPUBindGroupEntry {}
  interface GPUBindGroupLayout {}
  interface GPUBuffer {}
  interface GPUBufferBinding {}
  interface GPUBufferDescriptor {}
  interface GPUCommandEncoder {}
  interface GPUComputePassDescriptor {}
  interface GPUComputePipeline {}
  interface GPUDevice {}
  interface GPUQuerySetDescriptor {}
  interface GPUQueue {}
  interface GPUShaderModuleDescriptor {}
  interface GPUSupportedLimits {}
}

/** Counts of objects created and commands sent since the device was opened. A recorded step must not create any objects. */
export interface GpuCounters {
  buffers: number
  bindGroups: number
  pipelines: number
  dispatches: number
  submits: number
  bytesUploaded: number
}

/**
 * Returns whether this browser notices finished work every 100 ms only, and when something is submitted: Firefox does (bug 1870699; seen with 153.8 on 2026-11-28).
 *
 * When to delete: once no supported Firefox polls.
 */
const seesWorkLate = () => /\bFirefox\//.test(globalThis.navigator?.userAgent ?? '')

/** Feature of a device `cpu` that uses `relaxed_madd`. */
export const relaxedFeature = 'relaxed-madd'

/** units: characters. */
const longestFact = 80

/** Facts about an adapter, for people and for run records. */
export interface AdapterFacts {
  readonly vendor: string
  readonly architecture: string
  readonly description: string
  readonly isSoftware: boolean
  readonly hasF16: boolean
  readonly hasSubgroups: boolean
  readonly hasTimestamps: boolean
  /** Of an adapter that no person chose and that stands in for a faster device: why. */
  readonly why?: string
}

/** The error for a command that the device did not take. */
export const rejected = (why: string): GpuError =>
  new GpuError(
    'gpu.validation',
    `device: the GPU rejected a command: ${why} Later results are not valid. Stop the run and report this error.`,
  )

const withoutMemory = (why: string): GpuError =>
  new GpuError(
    'gpu.limit',
    `device: out of memory: ${why} Later results are not valid. Use a smaller model or batch, and reopen the device.`,
  )

/** An open device with its limits, its counters and its first error. */
export class Gpu {
  readonly device: GPUDevice
  readonly facts: AdapterFacts
  /** Which of this tab's devices this is. */
  readonly id: PlacedDevice
  readonly counters: GpuCounters = {
    buffers: 0,
    bindGroups: 0,
    pipelines: 0,
    dispatches: 0,
    submits: 0,
    bytesUploaded: 0,
  }
  /**
   * Resolves when the device is lost, either unexpectedly or by `close`, with the browser's description: `unknown: ...` or `destroyed:
   * ...`.
   */
  readonly lost: Promise<string>
  readonly #seesWorkLate: boolean
  #firstError: GpuError | undefined
  #isDestroyed = false
  #usedBytes = 0
  /** Counts the bytes of buffers back that are collected without `destroy`: their memory is freed with them. */
  readonly #collected = new FinalizationRegistry<number>((bytes) => {
    this.#usedBytes -= bytes
  })
  readonly #runs = new Set<Promise<unknown>>()
  /** Buffers of what is being made. */
  #making: GPUBuffer[] | undefined
  /** How waits that are under way end early. */
  readonly #waiting = new Set<(error: GpuError) => void>()

  constructor(
    device: GPUDevice,
    facts: AdapterFacts,
    id: PlacedDevice = { type: 'webgpu', index: 0 },
  ) {
    this.device = device
    this.facts = facts
    this.id = id
    this.#seesWorkLate = id.type === 'webgpu' && seesWorkLate()
    this.lost = device.lost.then(({ reason, message }) => `${reason}: ${message}`)
    device.addEventListener('uncapturederror', ({ error }) => {
      if (error instanceof GpuError) this.#fail(error)
      else if (error instanceof GPUOutOfMemoryError) this.#fail(withoutMemory(error.message))
      else this.#fail(rejected(error.message))
    })
    device.lost.then(({ reason, message }) => {
      log(1, 'device', () => `${formatDevice(id)} ${reason}: ${message}`)
      this.#isDestroyed ||= reason === 'destroyed'
      if (this.#isDestroyed) return
      this.#fail(
        new GpuError(
          'gpu.lost',
          `device: lost (${message}). Reopen it with runtimeOf(), load a checkpoint and resume, or reload the tab.`,
        ),
      )
    })
  }

  #fail(error: GpuError): void {
    this.#firstError ??= error
    for (const reject of this.#waiting) reject(this.#firstError)
    this.#waiting.clear()
  }

  /**
   * Waits for work on the device. errors: the device's first validation error, out-of-memory or loss; `gpu.lost` where it was destroyed.
   *
   * Racing against one long-lived promise instead would leak a little memory on each wait.
   */
  async wait(work: Promise<unknown>): Promise<void> {
    const nudging = this.#nudge()
    let reject: (error: GpuError) => void = () => undefined
    try {
      await new Promise((resolve, rejectWait) => {
        reject = rejectWait
        work.then(resolve, rejectWait)
        if (this.#firstError) reject(this.#firstError)
        else this.#waiting.add(reject)
      })
    } catch (error) {
      this.check()
      if (!this.#isDestroyed) throw error
      throw new GpuError(
        'gpu.lost',
        `device: destroyed before its work was done (${messageOf(error)}). Wait for its runs first, or reopen it with runtimeOf() and compile again.`,
        { cause: error },
      )
    } finally {
      this.#waiting.delete(reject)
      clearInterval(nudging)
    }
    this.check()
  }

  /** Makes such a browser notice finished work by submitting nothing, now and again until the returned timer ends. */
  #nudge(): ReturnType<typeof setInterval> | undefined {
    if (!this.#seesWorkLate) return undefined
    const nudge = () => this.queue.submit([])
    nudge()
    return setInterval(nudge, 1)
  }

  /** Whether it computes with `relaxed_madd`, whose bits differ between processors. */
  get isRelaxed(): boolean {
    const features: ReadonlySet<string> = this.device.features
    return features.has(relaxedFeature)
  }

  get limits(): GPUSupportedLimits {
    return this.device.limits
  }

  get queue(): GPUQueue {
    return this.device.queue
  }

  /** Notes a run of a program, which may submit more commands until it ends. */
  begin(run: Promise<unknown>): void {
    this.#runs.add(run)
    const end = () => this.#runs.delete(run)
    run.then(end, end)
  }

  /** Resolves when all runs that have begun have ended; undefined if there are none. */
  whenIdle(): Promise<unknown> | undefined {
    return this.#runs.size > 0 ? Promise.allSettled(this.#runs) : undefined
  }

  /** Throws the first error that the device reported, if any. */
  check(): void {
    if (this.#firstError) throw this.#firstError
  }

  /**
   * Returns a new buffer of `sizeBytes` (rounded up to 4, at least 4), counted and labelled. errors: `gpu.limit`, also where it would pass
   * the switch `memoryCap`.
   */
  createBuffer(label: string, sizeBytes: number, usage: number): GPUBuffer {
    const size = Math.max(4, Math.ceil(sizeBytes / 4) * 4)
    const limit =
      usage & bufferUsage.STORAGE
        ? Math.min(this.limits.maxBufferSize, this.limits.maxStorageBufferBindingSize)
        : this.limits.maxBufferSize
    if (size > limit) {
      throw new GpuError(
        'gpu.limit',
        `device: "${label}" needs ${size} bytes, but the adapter allows ${limit}. Use a smaller model or batch.`,
      )
    }
    this.#checkCap(label, size)
    this.counters.buffers++
    const buffer = this.device.createBuffer({ label, size, usage })
    this.#countUntilDestroyed(buffer)
    this.#making?.push(buffer)
    return buffer
  }

  /** Returns what `make` makes; where it throws, the buffers that it has created are destroyed. */
  orDestroy<T>(make: () => T): T {
    const made: GPUBuffer[] = []
    const outer = this.#making
    this.#making = made
    try {
      return make()
    } catch (error) {
      for (const buffer of made) buffer.destroy()
      throw error
    } finally {
      this.#making = outer
    }
  }

  #checkCap(label: string, size: number): void {
    const cap = switchValue('memoryCap')
    if (cap === null || this.#usedBytes + size <= cap) return
    const bytes = inUnitsOf(cap)
    throw new GpuError(
      'gpu.limit',
      `device: "${label}" needs ${bytes(size)}, and ${bytes(this.#usedBytes)} of the memory cap of ${bytes(cap)} are taken. Split the model over more ranks (pipeline or fullyShard; in the built-in training --parallel pp=2 or fsdp), use a smaller batch, free models and programs that are no longer used with destroy(), or raise memoryCap.`,
    )
  }

  /** Total bytes of the buffers that were created here, and neither destroyed nor collected. */
  get usedBytes(): number {
    return this.#usedBytes
  }

  #countUntilDestroyed(buffer: GPUBuffer): void {
    const { size } = buffer
    this.#usedBytes += size
    this.#collected.register(buffer, size, buffer)
    const destroy = buffer.destroy.bind(buffer)
    buffer.destroy = () => {
      if (this.#collected.unregister(buffer)) this.#usedBytes -= size
      destroy()
    }
  }

  write(buffer: GPUBuffer, data: ArrayBufferView<ArrayBuffer>, offsetBytes = 0): void {
    if (data.byteLength === 0) return
    const { byteLength, byteOffset } = data
    this.counters.bytesUploaded += byteLength
    // WebGPU takes no memory that may change its size.
    const isResizable = 'resizable' in data.buffer && data.buffer.resizable
    if (isResizable) data = new Uint8Array(data.buffer.slice(byteOffset, byteOffset + byteLength))
    this.queue.writeBuffer(buffer, offsetBytes, data.buffer, data.byteOffset, byteLength)
  }

  submit(encoder: GPUCommandEncoder): void {
    this.counters.submits++
    this.queue.submit([encoder.finish()])
  }

  close(): void {
    this.#isDestroyed = true
    this.device.destroy()
  }
}

const wantedFeatures = ['timestamp-query', 'subgroups'] as const
const wantedLimits = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxStorageBuffersPerShaderStage',
] as const

/** The adapters of this browser, at most `max`, each as often as it counts for a device: they are requested again, so each opens once. */
async function listDevices(max?: number): Promise<GPUAdapter[]> {
  const copies = switchValue('logicalDevices')
  const adapters = await listAdapters(max === undefined ? undefined : Math.ceil(max / copies))
  return adapters.flatMap((adapter) => new Array<GPUAdapter>(copies).fill(adapter)).slice(0, max)
}

/** An adapter, and the number of its device while all are visible. */
export interface FoundAdapter {
  readonly adapter: GPUAdapter
  readonly physicalIndex: number
}

/**
 * The adapters of the first visible devices, at most `max`, in the order of the switch `visibleDevices`; without it all, the fastest first.
 *
 * As with CUDA_VISIBLE_DEVICES, those from the first number on that no device has are not there. errors: `gpu.unavailable`.
 */
export async function findAdapters(max?: number): Promise<FoundAdapter[]> {
  const visible = switchValue('visibleDevices')
  const found = (all: readonly GPUAdapter[], physicalIndex: number): FoundAdapter => ({
    adapter: all[physicalIndex],
    physicalIndex,
  })
  if (visible === null) return (await listDevices(max)).map((_, i, all) => found(all, i))
  const wanted = visibleNumbers(visible, Number.POSITIVE_INFINITY).slice(0, max)
  const all = await listDevices(Math.max(-1, ...wanted) + 1)
  return visibleNumbers(visible, all.length)
    .slice(0, max)
    .map((number) => found(all, number))
}

/** A room takes so much of each member's facts; some drivers write long stories. */
const short = (text: string): string => text.slice(0, longestFact)

export const factsOf = (adapter: GPUAdapter): AdapterFacts => ({
  vendor: short(adapter.info.vendor),
  architecture: short(adapter.info.architecture),
  description: short(adapter.info.description),
  isSoftware: isSoftware(adapter.info),
  hasF16: adapter.features.has('shader-f16'),
  hasSubgroups: adapter.features.has('subgroups'),
  hasTimestamps: adapter.features.has('timestamp-query'),
})

function describe({ facts, limits, device }: Gpu): string {
  const sizes = wantedLimits.map((name) => `${name} ${limits[name]}`)
  return `${nameOf(device.adapterInfo)}${facts.isSoftware ? ' (software)' : ''}; ${[...device.features].join(', ')}; ${sizes.join(', ')}`
}

const isIndex = (index: number): boolean => Number.isInteger(index) && index >= 0

/**
 * Opens an adapter of this page or worker with all the limits that it offers; the first visible one by default.
 *
 * errors: `gpu.unavailable`: the context is not secure, the browser has no WebGPU, there is no adapter, or none with that index.
 */
export async function openGpu(index = 0): Promise<Gpu> {
  checkNumber('openGpu', 'index', index, isIndex, 'a whole number of at least 0')
  const visible = fixedSwitch('visibleDevices')
  fixedSwitch('logicalDevices')
  const adapters = await findAdapters(index + 1)
  const adapter = adapters[index]?.adapter
  if (adapters.length === 0 && visible !== null) {
    throw new GpuError(
      'gpu.unavailable',
      `device: no visible adapter: visibleDevices is "${clipped(visible)}", and this browser has ${(await listDevices()).length} devices. Change visibleDevices, or compile for the device "cpu".`,
    )
  }
  if (adapters.length === 0) {
    throw new GpuError(
      'gpu.unavailable',
      `device: this browser has WebGPU but offers no adapter. Turn on hardware acceleration in the browser, or compile for the device "cpu". ${webGpuAdvice().adapter}`,
    )
  }
  if (!adapter) {
    throw new GpuError(
      'gpu.unavailable',
      `device: expected webgpu:0${adapters.length > 1 ? ` to webgpu:${adapters.length - 1}` : ', the only one'}, got webgpu:${index}. Choose an index below gpu.deviceCount().`,
    )
  }
  const { features, limits } = adapter
  const device = await adapter.requestDevice({
    requiredFeatures: wantedFeatures.filter((feature) => features.has(feature)),
    requiredLimits: Object.fromEntries(wantedLimits.map((name) => [name, limits[name]])),
  })
  const gpu = new Gpu(device, factsOf(adapter), { type: 'webgpu', index })
  log(1, 'device', () => describe(gpu))
  return gpu
}
