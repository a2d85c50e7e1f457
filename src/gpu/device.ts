import { GpuError } from '../util/errors.ts'

/** What was created and sent since the device was opened: the numbers a recorded step must keep at zero. */
export interface GpuCounters {
  buffers: number
  bindGroups: number
  pipelines: number
  dispatches: number
  submits: number
  bytesUploaded: number
}

/** units: characters. */
const longestFact = 80

/** Facts about an adapter that people and run records need. */
export interface AdapterFacts {
  readonly vendor: string
  readonly architecture: string
  readonly description: string
  readonly isSoftware: boolean
  readonly hasF16: boolean
  readonly hasSubgroups: boolean
  readonly hasTimestamps: boolean
}

/** An opened device with its limits, its counters and its first error. */
export class Gpu {
  readonly device: GPUDevice
  readonly facts: AdapterFacts
  readonly counters: GpuCounters = {
    buffers: 0,
    bindGroups: 0,
    pipelines: 0,
    dispatches: 0,
    submits: 0,
    bytesUploaded: 0,
  }
  /** Rejects with the first validation error, out-of-memory or loss; never resolves. */
  readonly failed: Promise<never>
  #firstError: GpuError | undefined

  constructor(device: GPUDevice, facts: AdapterFacts) {
    this.device = device
    this.facts = facts
    this.failed = new Promise((_, reject) => {
      const fail = (error: GpuError) => {
        this.#firstError ??= error
        reject(this.#firstError)
      }
      device.addEventListener('uncapturederror', ({ error }) => {
        fail(
          new GpuError(
            'gpu.validation',
            `device: a command was rejected: ${error.message} The results after it are not valid; stop the run and report this.`,
          ),
        )
      })
      device.lost.then(({ reason, message }) => {
        if (reason === 'destroyed') return
        fail(
          new GpuError('gpu.lost', `device: lost (${message}). Reload the tab to get a new one.`),
        )
      })
    })
    // Those who wait on the GPU race against `failed`; nobody waiting is not a second failure.
    this.failed.catch(() => undefined)
  }

  get limits(): GPUSupportedLimits {
    return this.device.limits
  }

  get queue(): GPUQueue {
    return this.device.queue
  }

  /** Throws the first error that the device reported. */
  check(): void {
    if (this.#firstError) throw this.#firstError
  }

  /** A new buffer of `sizeBytes` (rounded up to 4, at least 4), counted and labelled. errors: `gpu.limit`. */
  createBuffer(label: string, sizeBytes: number, usage: GPUBufferUsageFlags): GPUBuffer {
    const size = Math.max(4, Math.ceil(sizeBytes / 4) * 4)
    const limit =
      usage & GPUBufferUsage.STORAGE
        ? Math.min(this.limits.maxBufferSize, this.limits.maxStorageBufferBindingSize)
        : this.limits.maxBufferSize
    if (size > limit) {
      throw new GpuError(
        'gpu.limit',
        `device: "${label}" needs ${size} bytes, the adapter allows ${limit}. Use a smaller model or batch.`,
      )
    }
    this.counters.buffers++
    return this.device.createBuffer({ label, size, usage })
  }

  write(buffer: GPUBuffer, data: ArrayBufferView<ArrayBuffer>, offsetBytes = 0): void {
    if (data.byteLength === 0) return
    this.counters.bytesUploaded += data.byteLength
    this.queue.writeBuffer(buffer, offsetBytes, data.buffer, data.byteOffset, data.byteLength)
  }

  submit(encoder: GPUCommandEncoder): void {
    this.counters.submits++
    this.queue.submit([encoder.finish()])
  }

  close(): void {
    this.device.destroy()
  }
}

const wantedFeatures = ['timestamp-query', 'subgroups', 'shader-f16'] as const
const wantedLimits = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxStorageBuffersPerShaderStage',
] as const

/**
 * Opens the best adapter of this page or worker with all the limits that it offers.
 *
 * errors: `gpu.unavailable`, which says whether the context is insecure, the browser has no WebGPU, or no adapter came up.
 */
export async function openGpu(): Promise<Gpu> {
  if (!globalThis.isSecureContext) {
    throw new GpuError(
      'gpu.unavailable',
      `device: WebGPU needs a secure context, got ${globalThis.location?.origin}. Open the page over https, or on this machine as http://localhost.`,
    )
  }
  if (!globalThis.navigator?.gpu) {
    throw new GpuError(
      'gpu.unavailable',
      'device: this browser has no WebGPU. Use a current Chrome, Edge, Safari or Firefox; on Linux, Chrome may need chrome://flags/#enable-unsafe-webgpu.',
    )
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' })
  if (!adapter) {
    throw new GpuError(
      'gpu.unavailable',
      'device: WebGPU is there but no adapter came up. Turn on hardware acceleration in the browser, or start Chromium with --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader for a software one.',
    )
  }
  const { info, features, limits } = adapter
  // A room takes so much of each member's facts; some drivers write long stories.
  const short = (text: string) => text.slice(0, longestFact)
  const device = await adapter.requestDevice({
    requiredFeatures: wantedFeatures.filter((feature) => features.has(feature)),
    requiredLimits: Object.fromEntries(wantedLimits.map((name) => [name, limits[name]])),
  })
  return new Gpu(device, {
    vendor: short(info.vendor),
    architecture: short(info.architecture),
    description: short(info.description),
    isSoftware:
      info.isFallbackAdapter === true ||
      /swiftshader|llvmpipe|lavapipe|warp|basic render/i.test(
        `${info.architecture} ${info.description}`,
      ),
    hasF16: features.has('shader-f16'),
    hasSubgroups: features.has('subgroups'),
    hasTimestamps: features.has('timestamp-query'),
  })
}
