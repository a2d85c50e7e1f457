import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { countElements, type HostDType } from '../../util/shape.ts'
import type { Prepared } from '../plan/prepare.ts'
import { hostArrays, type RunOutputs } from '../plan/step-program.ts'
import type { ProgramBuffers } from './program-buffers.ts'

/** The way of a run's outputs to the host: one staging buffer, in which they lie behind each other. */
export class OutputReadback {
  /** The run that holds the staging buffer, until it has ended. */
  heldBy: Promise<unknown> | undefined
  readonly #gpu: Gpu
  readonly #outputs: Prepared['outputs']
  readonly #offsets: readonly number[]
  readonly #staging: GPUBuffer

  constructor(gpu: Gpu, { outputs }: Prepared, label: string) {
    this.#gpu = gpu
    this.#outputs = outputs
    let bytes = 0
    this.#offsets = outputs.map(({ type }) => {
      const offset = bytes
      bytes += countElements(type.shape) * 4
      return offset
    })
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#staging = gpu.createBuffer(label, bytes, usage)
  }

  get sizeBytes(): number {
    return this.#staging.size
  }

  /** Records the copies out of the program's buffers. */
  copy(encoder: GPUCommandEncoder, buffers: ProgramBuffers): void {
    this.#outputs.forEach(({ type }, i) => {
      const bytes = countElements(type.shape) * 4
      if (bytes === 0) return
      encoder.copyBufferToBuffer(buffers.outputs[i], 0, this.#staging, this.#offsets[i], bytes)
    })
  }

  /** The outputs, once what was submitted has run. errors: the device's first error, where there was one. */
  async read(): Promise<RunOutputs> {
    await mapped(this.#gpu, this.#staging)
    const bytes = this.#staging.getMappedRange()
    const outputs: RunOutputs = {}
    this.#outputs.forEach(({ name, type }, i) => {
      const array = hostArrays[type.dtype as HostDType]
      outputs[name] = new array(bytes, this.#offsets[i], countElements(type.shape)).slice()
    })
    this.#staging.unmap()
    return outputs
  }

  destroy(): void {
    this.#staging.destroy()
  }
}
