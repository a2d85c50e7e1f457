import type { Gpu } from './device.ts'

/** Waits until a staging buffer is mapped for reading. errors: the device's first error, where there was one. */
export async function mapped(gpu: Gpu, staging: GPUBuffer): Promise<void> {
  gpu.check()
  return gpu.wait(staging.mapAsync(GPUMapMode.READ))
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
    GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
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
