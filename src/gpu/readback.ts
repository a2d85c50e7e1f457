import type { Gpu } from './device.ts'
import { bufferUsage, mapMode } from './usage.ts'

/** Waits until a staging buffer is mapped for reading. errors: the device's first error, where there was one. */
export async function mapped(gpu: Gpu, staging: GPUBuffer): Promise<void> {
  gpu.check()
  return gpu.wait(staging.mapAsync(mapMode.READ))
}

/** Returns a copy of `sizeBytes` bytes of a buffer; makes a staging buffer for it, so it is not for the step's path. */
export async function download(
  gpu: Gpu,
  buffer: GPUBuffer,
  offsetBytes: number,
  sizeBytes: number,
): Promise<ArrayBuffer> {
  if (sizeBytes === 0) return new ArrayBuffer(0)
  const staging = gpu.createBuffer(
    'download',
    sizeBytes,
    bufferUsage.MAP_READ | bufferUsage.COPY_DST,
  )
  const encoder = gpu.device.createCommandEncoder({ label: 'download' })
  encoder.copyBufferToBuffer(buffer, offsetBytes, staging, 0, sizeBytes)
  gpu.submit(encoder)
  try {
    await mapped(gpu, staging)
    return staging.getMappedRange().slice(0)
  } finally {
    staging.destroy()
  }
}

/** A buffer of the device `cpu`, as far as it has more than WebGPU's. */
interface HostBuffer {
  readInto(target: Uint8Array): Promise<void>
}

/** Reads the same bytes of a buffer again and again: through one staging buffer, and on the device `cpu` at once. */
export class Readback {
  readonly #gpu: Gpu
  readonly #buffer: GPUBuffer
  readonly #staging: GPUBuffer | undefined

  constructor(gpu: Gpu, buffer: GPUBuffer) {
    this.#gpu = gpu
    this.#buffer = buffer
    if (gpu.id.type === 'cpu') return
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#staging = gpu.createBuffer('readback', buffer.size, usage)
  }

  /** Copies the buffer's first bytes into `target`; one call at a time. */
  async into(target: ArrayBufferView): Promise<void> {
    const { buffer, byteOffset, byteLength } = target
    const given = new Uint8Array(buffer, byteOffset, byteLength)
    const staging = this.#staging
    if (!staging) {
      this.#gpu.check()
      return this.#gpu.wait((this.#buffer as unknown as HostBuffer).readInto(given))
    }
    const encoder = this.#gpu.device.createCommandEncoder({ label: 'readback' })
    encoder.copyBufferToBuffer(this.#buffer, 0, staging, 0, byteLength)
    this.#gpu.submit(encoder)
    await mapped(this.#gpu, staging)
    given.set(new Uint8Array(staging.getMappedRange(0, byteLength)))
    staging.unmap()
  }

  destroy(): void {
    this.#staging?.destroy()
  }
}
