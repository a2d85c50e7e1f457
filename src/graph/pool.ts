import type { Gpu } from '../gpu/device.ts'
import { invariant } from '../util/errors.ts'

/** Elements that a tensor inside a pool must start at a multiple of: 256 bytes, WebGPU's binding alignment. */
export const poolAlignment = 64

/** `count` rounded up to the alignment of a pool. */
export const alignInPool = (count: number): number =>
  Math.ceil(count / poolAlignment) * poolAlignment

/** One device buffer of f32 elements that outlives programs: parameters, gradients or optimizer state side by side. */
export class Pool {
  readonly label: string
  readonly elements: number
  #buffer: GPUBuffer | undefined

  constructor(label: string, elements: number) {
    this.label = label
    this.elements = elements
  }

  /** Makes the buffer, filled with zeros, unless it exists. */
  allocate(gpu: Gpu): GPUBuffer {
    this.#buffer ??= gpu.createBuffer(
      this.label,
      this.elements * 4,
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    )
    return this.#buffer
  }

  get buffer(): GPUBuffer {
    invariant(this.#buffer, () => `pool "${this.label}" is used before it is allocated`)
    return this.#buffer
  }

  destroy(): void {
    this.#buffer?.destroy()
    this.#buffer = undefined
  }

  get isAllocated(): boolean {
    return this.#buffer !== undefined
  }
}
