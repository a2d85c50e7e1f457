import type { Gpu } from '../gpu/device.ts'
import { download } from '../gpu/readback.ts'
import { ShapeError } from '../util/errors.ts'
import { countElements, formatShape, type TensorType } from '../util/shape.ts'
import { Pool } from './pool.ts'
import { Tensor } from './tensor.ts'

/** A place on the device: elements `start` and following of a pool. */
export interface Home {
  readonly pool: Pool
  readonly start: number
}

/** Contents on the host; the array is that of the tensor's dtype. */
export type StoredData = Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>

/** Counts re-layouts; a program that finds another number than at its binding binds again. */
let layoutGeneration = 0
export const currentLayout = (): number => layoutGeneration

/**
 * A tensor with contents that outlive programs: a host array until a program first needs it, then part of a pool on the device.
 *
 * Parameters and the buffers of modules are such tensors.
 */
export abstract class StoredTensor<Data extends StoredData = StoredData> extends Tensor {
  /** Its key in the state dict, once it belongs to a module. */
  name = ''
  #home: Home | undefined
  #host: Data
  #gpu: Gpu | undefined

  constructor(type: TensorType, data: Data) {
    super()
    if (data.length !== countElements(type.shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.constructor.name}: ${formatShape(type.shape)} needs ${countElements(type.shape)} elements, got ${data.length}. Check the initialiser.`,
      )
    }
    this.#host = data
  }

  /** Where it lives on the device, making a place of its own if it has none. */
  place(gpu: Gpu): Home {
    if (!this.#home) {
      const pool = new Pool(this.name || 'stored tensor', this.count)
      pool.allocate(gpu)
      this.moveTo(gpu, { pool, start: 0 })
    }
    return this.#home!
  }

  /** Moves the contents into `home`, whose pool is allocated; earlier programs bind again at their next run. */
  moveTo(gpu: Gpu, home: Home): void {
    if (this.#home) {
      const encoder = gpu.device.createCommandEncoder({ label: `move ${this.name}` })
      encoder.copyBufferToBuffer(
        this.#home.pool.buffer,
        this.#home.start * 4,
        home.pool.buffer,
        home.start * 4,
        this.count * 4,
      )
      gpu.submit(encoder)
    } else {
      gpu.write(home.pool.buffer, this.#host, home.start * 4)
    }
    this.#home = home
    this.#gpu = gpu
    layoutGeneration++
  }

  /** Its home, if it lives on the device. */
  get home(): Home | undefined {
    return this.#home
  }

  /** Its contents as they are now: from the device where it lives there. */
  async read(): Promise<Data> {
    if (!this.#home || !this.#gpu) return this.#host.slice() as Data
    const { pool, start } = this.#home
    const bytes = await download(this.#gpu, pool.buffer, start * 4, this.count * 4)
    return (this.dtype === 'i32' ? new Int32Array(bytes) : new Float32Array(bytes)) as Data
  }

  /** Replaces its contents. errors: `shape.mismatch` for another number of elements. */
  assign(data: Data): void {
    if (data.length !== this.count) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.name || 'stored tensor'}: expected ${this.count} elements for ${formatShape(this.shape)}, got ${data.length}. Load a file made for this model.`,
      )
    }
    if (this.#home && this.#gpu) this.#gpu.write(this.#home.pool.buffer, data, this.#home.start * 4)
    else this.#host = data.slice() as Data
  }
}
