import { isOf } from '../util/kind-of.ts'
import type { Gpu } from './device.ts'
import { bufferUsage, mapMode } from './usage.ts'

/** Element arrays that can be staged. */
export type StageableArray =
  | Float32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>

/** A tensor in upload memory, valid for one run of a program. */
export class StagedTensor {
  readonly shape: readonly number[]
  /** Typed array type of the elements. */
  readonly array: new (
    count: number,
  ) => StageableArray
  /** Number of elements. */
  readonly length: number
  /**
   * The elements where they may be class labels, which a run checks and counts: numbers one a sample, and whole ones. The host may read them
   * until the tensor is used.
   */
  elements: StageableArray | undefined
  readonly #buffer: GPUBuffer
  readonly #giveBack: (buffer: GPUBuffer) => void
  #isUsed = false

  constructor(
    shape: readonly number[],
    data: StageableArray,
    buffer: GPUBuffer,
    giveBack: (buffer: GPUBuffer) => void,
  ) {
    this.shape = shape
    this.array = data.constructor as new (count: number) => StageableArray
    this.length = data.length
    const isWhole = !isOf(data, Float32Array) || data.every(Number.isInteger)
    this.elements = isWhole || shape.length < 2 ? data.slice() : undefined
    this.#buffer = buffer
    this.#giveBack = giveBack
  }

  /** Returns whether a run has used it. */
  get isUsed(): boolean {
    return this.#isUsed
  }

  /** Records the copy to a program's input; call `release` after the submit. */
  record(encoder: GPUCommandEncoder, target: GPUBuffer, offset = 0): void {
    this.#isUsed = true
    if (this.length > 0)
      encoder.copyBufferToBuffer(this.#buffer, 0, target, offset, this.length * 4)
  }

  /** Releases the memory, which is reused once the device has read it. */
  release(): void {
    this.#isUsed = true
    this.elements = undefined
    this.#giveBack(this.#buffer)
  }
}

/** A batch with its arrays in upload memory. */
export type Staged<B> = {
  [Field in keyof B]: B[Field] extends { data: StageableArray } ? StagedTensor : B[Field]
}

/**
 * Upload memory for batches: the counterpart of `pinMemory` in PyTorch.
 *
 * A batch is written into mapped buffers, memory shared with the GPU process, while earlier steps run. The run that uses it only records a
 * copy on the device, where `writeBuffer` would copy on the host during the step. Buffers are reused by size after the first batches.
 */
export class StagedUploads {
  readonly #gpu: Gpu
  readonly #free = new Map<number, GPUBuffer[]>()

  constructor(gpu: Gpu) {
    this.#gpu = gpu
  }

  /** Returns the batch with every tensor staged and other fields unchanged. Each result is valid for one run. */
  async pin<B extends object>(batch: B): Promise<Staged<B>> {
    const staged = Object.entries(batch).map(([field, value]) => {
      const isTensor = typeof value === 'object' && value !== null && ArrayBuffer.isView(value.data)
      return [field, isTensor ? this.#stage(value.shape, value.data) : value]
    })
    return Object.fromEntries(staged)
  }

  /** Releases the memory of a batch that no run has used. */
  unpin(batch: object): void {
    for (const value of Object.values(batch))
      if (value instanceof StagedTensor && !value.isUsed) value.release()
  }

  destroy(): void {
    for (const buffer of [...this.#free.values()].flat()) buffer.destroy()
    this.#free.clear()
  }

  #stage(shape: readonly number[], data: StageableArray): StagedTensor {
    const sizeBytes = Math.max(4, data.byteLength)
    const free = this.#free.get(sizeBytes) ?? []
    this.#free.set(sizeBytes, free)
    const buffer = free.pop() ?? this.#make(sizeBytes)
    const bytes = new Uint8Array(buffer.getMappedRange())
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    buffer.unmap()
    return new StagedTensor(shape, data, buffer, (used) => {
      used.mapAsync(mapMode.WRITE).then(
        () => free.push(used),
        // The device is gone, which its users hear from the device itself.
        () => undefined,
      )
    })
  }

  #make(sizeBytes: number): GPUBuffer {
    this.#gpu.counters.buffers++
    return this.#gpu.device.createBuffer({
      label: 'staged upload',
      size: sizeBytes,
      usage: bufferUsage.MAP_WRITE | bufferUsage.COPY_SRC,
      mappedAtCreation: true,
    })
  }
}
