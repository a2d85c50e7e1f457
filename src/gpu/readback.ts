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

/** Reads the same bytes of a buffer again and again, through one staging buffer. */
export class Readback {
  readonly #gpu: Gpu
  readonly #buffer: GPUBuffer
  readonly #staging: GPUBuffer

  constructor(gpu: Gpu, buffer: GPUBuffer) {
    this.#gpu = gpu
    this.#buffer = buffer
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#staging = gpu.createBuffer('readback', buffer.size, usage)
  }

  /** Copies the buffer's first bytes into `target`; one call at a time. */
  async into(target: ArrayBufferView): Promise<void> {
    const { buffer, byteOffset, byteLength } = target
    const encoder = this.#gpu.device.createCommandEncoder({ label: 'readback' })
    encoder.copyBufferToBuffer(this.#buffer, 0, this.#staging, 0, byteLength)
    this.#gpu.submit(encoder)
    await mapped(this.#gpu, this.#staging)
    const bytes = new Uint8Array(this.#staging.getMappedRange(0, byteLength))
    new Uint8Array(buffer, byteOffset, byteLength).set(bytes)
    this.#staging.unmap()
  }

  destroy(): void {
    this.#staging.destroy()
  }
}
