import { download, Readback } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { formatDevice, type PlacedDevice, sameHardware } from '../../util/device.ts'
import { invariant, TabringError } from '../../util/errors.ts'
import { isOf } from '../../util/kind-of.ts'
import type { DType } from '../../util/shape.ts'
import { deviceOf, formatMemory, type Memory } from './memory-device.ts'

/** Elements that a tensor inside a pool must start at a multiple of: 256 bytes, WebGPU's binding alignment. */
export const poolAlignment = 64

/** `count` rounded up to the alignment of a pool. */
export const alignInPool = (count: number): number =>
  Math.ceil(count / poolAlignment) * poolAlignment

/** Contents on the host; the array type is that of the dtype. */
export type StoredData = Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>

/** One buffer of 4-byte elements that outlives programs: parameters, gradients or optimizer state side by side. */
export class Pool {
  readonly label: string
  readonly elements: number
  /** Where it is to lie, if that is decided before it is allocated. */
  readonly #device: PlacedDevice | undefined
  #memory: Memory | undefined
  #buffer: GPUBuffer | undefined
  #host: ArrayBuffer | undefined
  #readback: Readback | undefined
  /** How many tensors lie in it. */
  #tenants = 0
  /** Of `toHost` under way: whose copy still counts. */
  #leaving: object | undefined
  /** Frees it, and what belongs to it, when the last tensor has left. */
  whenEmpty: () => Promise<unknown> | undefined = () => {
    this.destroy()
    return undefined
  }

  constructor(label: string, elements: number, device?: PlacedDevice) {
    this.label = label
    this.elements = elements
    this.#device = device
  }

  /** Makes the contents, zeros but for what was written so far, unless they exist. errors: `device.mismatch` where they exist in other memory. */
  allocate(memory: Memory): this {
    this.#leaving = undefined
    if (this.#memory === memory) return this
    const { device } = this
    if (this.#memory || (device && !sameHardware(device, deviceOf(memory)))) {
      const own = this.#memory ? formatMemory(this.#memory, memory) : formatDevice(device!)
      throw new TabringError(
        'device.mismatch',
        `${this.label}: the program runs on ${formatMemory(memory)}, but this is on ${own}. After model.to(device), create the optimizer again and load its state.`,
      )
    }
    if (memory === 'host') this.#host ??= new ArrayBuffer(this.elements * 4)
    else {
      this.#buffer = memory.createBuffer(
        this.label,
        this.elements * 4,
        bufferUsage.STORAGE | bufferUsage.COPY_SRC | bufferUsage.COPY_DST,
      )
      if (this.#host) memory.write(this.#buffer, new Float32Array(this.#host))
      this.#host = undefined
    }
    this.#memory = memory
    return this
  }

  /** A tensor lies in it from now on. */
  enter(): void {
    this.#tenants++
  }

  /**
   * A tensor has left. After the last one `whenEmpty` is called, when the runs under way have ended, which may still use the contents;
   * then what this returns resolves.
   */
  leave(): Promise<unknown> | undefined {
    this.#tenants--
    if (this.#tenants > 0) return undefined
    const memory = this.#memory
    const free = () => (this.#tenants === 0 ? this.whenEmpty() : undefined)
    const ended = memory && memory !== 'host' ? memory.whenIdle() : undefined
    return ended ? ended.then(free) : free()
  }

  /** Takes the contents from the device to the host, until the pool is allocated again. cost: a copy and a wait. */
  async toHost(): Promise<void> {
    const memory = this.#memory
    if (!memory || memory === 'host') return
    const leaving = {}
    this.#leaving = leaving
    const { buffer } = await this.read()
    if (this.#leaving !== leaving) return
    this.destroy()
    this.#host = buffer
  }

  get memory(): Memory | undefined {
    return this.#memory
  }

  /** The device on which it lies or is to lie; undefined until a program decides. */
  get device(): PlacedDevice | undefined {
    return this.#device ?? (this.#memory && deviceOf(this.#memory))
  }

  /** The device buffer. */
  get buffer(): GPUBuffer {
    invariant(this.#buffer, () => `pool "${this.label}" is used before it is allocated`)
    return this.#buffer
  }

  /** `count` elements of the contents on the host, from `start` on; writing to them changes the pool. */
  host(start: number, count: number, dtype: DType = 'f32'): StoredData {
    invariant(this.#host, () => `pool "${this.label}" is not on the host`)
    const array = dtype === 'f32' ? Float32Array : Int32Array
    return new array(this.#host, start * 4, count)
  }

  /** Frees the contents; allocated again, they are zeros. */
  destroy(): void {
    this.#readback?.destroy()
    this.#readback = undefined
    this.#buffer?.destroy()
    this.#buffer = undefined
    this.#host = undefined
    this.#memory = undefined
  }

  /** True if it has contents, on a device or on the host. */
  get isFilled(): boolean {
    return this.#memory !== undefined || this.#host !== undefined
  }

  /** A copy of `count` elements from `start` on. cost: on a device a copy and a wait; not for a step. */
  async read(start = 0, count = this.elements - start, dtype: DType = 'f32'): Promise<StoredData> {
    const memory = this.#memory
    if (memory && memory !== 'host') {
      const bytes = await download(memory, this.buffer, start * 4, count * 4)
      return dtype === 'f32' ? new Float32Array(bytes) : new Int32Array(bytes)
    }
    if (!this.#host) return dtype === 'f32' ? new Float32Array(count) : new Int32Array(count)
    return this.host(start, count, dtype).slice()
  }

  /** Copies the first elements of allocated contents into `target`; one call at a time. cost: as `read`, but it keeps a staging buffer of the pool's size for the next call. */
  async readInto(target: StoredData): Promise<void> {
    const memory = this.#memory
    if (memory && memory !== 'host') {
      this.#readback ??= new Readback(memory, this.buffer)
      await this.#readback.into(target)
      return
    }
    target.set(this.host(0, target.length, isOf(target, Int32Array) ? 'i32' : 'f32'))
  }

  /** Replaces elements from `start` on, now or when there is memory. */
  write(data: StoredData, start = 0): void {
    this.#leaving = undefined
    if (this.#memory && this.#memory !== 'host') {
      this.#memory.write(this.buffer, data, start * 4)
      return
    }
    this.#host ??= new ArrayBuffer(this.elements * 4)
    this.host(start, data.length, isOf(data, Int32Array) ? 'i32' : 'f32').set(data)
  }

  /** Copies `count` elements of another pool in the same memory. */
  copyFrom(other: Pool, from: number, to: number, count: number): void {
    const memory = this.#memory
    invariant(memory && memory === other.memory, () => `pool "${this.label}" copies across devices`)
    if (memory === 'host') {
      this.host(to, count).set(other.host(from, count) as Float32Array<ArrayBuffer>)
      return
    }
    const encoder = memory.device.createCommandEncoder({ label: `copy to ${this.label}` })
    encoder.copyBufferToBuffer(other.buffer, from * 4, this.buffer, to * 4, count * 4)
    memory.submit(encoder)
  }

  /** Exchanges contents with a pool of the same length; both are allocated. cost: three copies, and a buffer for one. */
  swap(other: Pool): void {
    const memory = this.#memory
    invariant(
      memory && memory === other.memory && other.elements === this.elements,
      () => 'pools that cannot be swapped',
    )
    const kept = new Pool(`swap of ${this.label}`, this.elements).allocate(memory)
    kept.copyFrom(this, 0, 0, this.elements)
    this.copyFrom(other, 0, 0, this.elements)
    other.copyFrom(kept, 0, 0, this.elements)
    if (memory !== 'host') kept.buffer.destroy()
  }
}
