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
  /** Of the outputs of one run. */
  readonly #bytes: number

  constructor(gpu: Gpu, { outputs }: Prepared, label: string, runs = 1) {
    this.#gpu = gpu
    this.#outputs = outputs
    let bytes = 0
    this.#offsets = outputs.map(({ type }) => {
      const offset = bytes
      bytes += countElements(type.shape) * 4
      return offset
    })
    this.#bytes = bytes
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#staging = gpu.createBuffer(label, bytes * runs, usage)
  }

  get sizeBytes(): number {
    return this.#staging.size
  }

  /** Records the copies out of the program's buffers. */
  copy(encoder: GPUCommandEncoder, buffers: ProgramBuffers, runs = 1): void {
    this.#outputs.forEach(({ type }, i) => {
      const bytes = countElements(type.shape) * 4
      if (bytes === 0) return
      const from = buffers.outputs[i]
      for (let run = 0; run < runs; run++) {
        const to = run * this.#bytes + this.#offsets[i]
        const offset = run * buffers.strideOf(from)
        encoder.copyBufferToBuffer(from, offset, this.#staging, to, bytes)
      }
    })
  }

  /** The outputs of each run, once what was submitted has run. errors: the device's first error, where there was one. */
  async read(runs = 1): Promise<RunOutputs[]> {
    await mapped(this.#gpu, this.#staging)
    const bytes = this.#staging.getMappedRange()
    const all = Array.from({ length: runs }, (_, run) => {
      const outputs: RunOutputs = {}
      this.#outputs.forEach(({ name, type }, i) => {
        const array = hostArrays[type.dtype as HostDType]
        const offset = run * this.#bytes + this.#offsets[i]
        outputs[name] = new array(bytes, offset, countElements(type.shape)).slice()
      })
      return outputs
    })
    this.#staging.unmap()
    return all
  }

  destroy(): void {
    this.#staging.destroy()
  }
}
