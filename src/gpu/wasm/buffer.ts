import { GpuError } from '../../util/errors.ts'
import { bufferUsage } from '../usage.ts'
import type { WasmHeap } from './heap.ts'
import type { WorkQueue } from './queue.ts'

/** Where a buffer's bytes are: in the heap, where kernels find them, or, if it can be mapped, in an array that the host reads without another copy. */
type Place = { readonly address: number } | { readonly array: ArrayBuffer }

/** The memory of a device's buffers. */
export class BufferMemory {
  readonly heap: WasmHeap
  readonly queue: WorkQueue
  /** Frees what is collected without `destroy`. */
  readonly #collected = new FinalizationRegistry<number>((address) => this.#freeLater(address))

  constructor(heap: WasmHeap, queue: WorkQueue) {
    this.heap = heap
    this.queue = queue
  }

  /** Returns a buffer of zeros. errors: `gpu.limit`. */
  allocate(descriptor: GPUBufferDescriptor): WasmBuffer {
    const { label = '', size, usage } = descriptor
    if (usage & (bufferUsage.MAP_READ | bufferUsage.MAP_WRITE))
      return new WasmBuffer(this, descriptor, { array: newArray(label, size) })
    const address = this.heap.allocate(label, size)
    const buffer = new WasmBuffer(this, descriptor, { address })
    this.#collected.register(buffer, address, buffer)
    return buffer
  }

  free(buffer: WasmBuffer, address: number): void {
    if (this.#collected.unregister(buffer)) this.#freeLater(address)
  }

  /** Work that was submitted may still use it. */
  #freeLater(address: number): void {
    this.queue.after(() => this.heap.free(address))
  }
}

type MapState = 'unmapped' | 'pending' | 'mapped'

export class WasmBuffer {
  readonly label: string
  readonly size: number
  readonly usage: number
  readonly #memory: BufferMemory
  readonly #place: Place
  #state: MapState | 'destroyed'

  constructor(
    memory: BufferMemory,
    { label = '', size, usage, mappedAtCreation = false }: GPUBufferDescriptor,
    place: Place,
  ) {
    this.label = label
    this.size = size
    this.usage = usage
    this.#memory = memory
    this.#place = place
    this.#state = mappedAtCreation ? 'mapped' : 'unmapped'
  }

  get mapState(): MapState {
    return this.#state === 'destroyed' ? 'unmapped' : this.#state
  }

  /** Why no command may use it; undefined where one may. */
  get problem(): string | undefined {
    return this.#state === 'unmapped' ? undefined : `buffer "${this.label}" is ${this.#state}`
  }

  /** Undefined where no kernel can use it. */
  get address(): number | undefined {
    return 'address' in this.#place ? this.#place.address : undefined
  }

  /** The bytes as they are now; not to be kept, since memory that grows may move. */
  bytes(offset: number, size: number): Uint8Array {
    const place = this.#place
    if ('array' in place) return new Uint8Array(place.array, offset, size)
    const start = place.address + offset
    return this.#memory.heap.bytes.subarray(start, start + size)
  }

  /** Copies the first bytes into `target` when all work that was submitted is done. */
  async readInto(target: Uint8Array): Promise<void> {
    const { queue } = this.#memory
    // Nothing that is submitted later runs before what follows.
    await queue.done()
    if (this.problem || queue.isClosed)
      throw new Error(`readInto: buffer "${this.label}" or its device was destroyed.`)
    target.set(this.bytes(0, target.length))
  }

  /** Resolves when all work that was submitted is done. */
  async mapAsync(_mode?: number): Promise<void> {
    if (this.problem) throw new Error(`mapAsync: ${this.problem}.`)
    this.#state = 'pending'
    await this.#memory.queue.done()
    if (this.mapState !== 'pending' || this.#memory.queue.isClosed)
      throw new Error(`mapAsync: buffer "${this.label}" or its device was destroyed.`)
    this.#state = 'mapped'
  }

  /** The whole, to be read or written; or a copy of a part, to be read. */
  getMappedRange(offset = 0, size = this.size - offset): ArrayBuffer {
    const place = this.#place
    if (this.#state !== 'mapped' || !('array' in place))
      throw new Error(`getMappedRange: buffer "${this.label}" is not mapped.`)
    return size === this.size ? place.array : place.array.slice(offset, offset + size)
  }

  unmap(): void {
    if (this.#state !== 'destroyed') this.#state = 'unmapped'
  }

  /** Its memory is free once all work that was submitted is done. */
  destroy(): void {
    this.#state = 'destroyed'
    if (this.address !== undefined) this.#memory.free(this, this.address)
  }
}

function newArray(label: string, size: number): ArrayBuffer {
  try {
    return new ArrayBuffer(size)
  } catch (cause) {
    throw new GpuError(
      'gpu.limit',
      `device: "${label}" needs ${size} bytes, which this machine does not give. Use a smaller model or batch.`,
      { cause },
    )
  }
}
