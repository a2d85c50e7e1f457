import type { Gpu } from '../gpu/device.ts'
import { download } from '../gpu/readback.ts'
import { ShapeError } from '../util/errors.ts'
import { countElements, formatShape, type Shape, tensorType } from '../util/shape.ts'
import type { GradientExchange } from './exchange.ts'
import { Pool } from './pool.ts'
import { Tensor, TracedTensor } from './tensor.ts'
import { activeTrace } from './trace.ts'
import { GraphValue } from './value.ts'

/** A place on the device: elements `start` and following of a pool. */
export interface Home {
  readonly pool: Pool
  readonly start: number
}

/** Counts re-layouts; a program that finds another number than at its binding binds again. */
let layoutGeneration = 0
export const currentLayout = (): number => layoutGeneration

/**
 * A tensor that training changes. It is a host array until a program first needs it, then lives in a pool on the device.
 */
export class Parameter extends Tensor {
  readonly value: GraphValue
  /** Frozen parameters get no gradient and are never updated. */
  requiresGrad = true
  /** Its key in the state dict, once it belongs to a module. */
  name = ''
  /** Set by DistributedDataParallel: how gradients are summed over ranks. */
  exchange: GradientExchange | undefined
  #home: Home | undefined
  #host: Float32Array<ArrayBuffer>
  #gpu: Gpu | undefined

  constructor(shape: Shape, data: Float32Array<ArrayBuffer>) {
    if (data.length !== countElements(shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `Parameter: ${formatShape(shape)} needs ${countElements(shape)} elements, got ${data.length}. Check the initialiser.`,
      )
    }
    super()
    this.value = new GraphValue(tensorType(shape), { kind: 'parameter', parameter: this })
    this.#host = data
  }

  /** The gradient that `backward` gave it in the function being compiled; undefined before, and after `zeroGrad`. */
  get grad(): Tensor | undefined {
    const gradient = activeTrace('grad').gradients.get(this)
    return gradient && new TracedTensor(gradient)
  }

  /** Where it lives on the device, making a place of its own if it has none. */
  place(gpu: Gpu): Home {
    if (!this.#home) {
      const pool = new Pool(this.name || 'parameter', this.count)
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
  async read(): Promise<Float32Array<ArrayBuffer>> {
    if (!this.#home || !this.#gpu) return this.#host.slice()
    const { pool, start } = this.#home
    return new Float32Array(await download(this.#gpu, pool.buffer, start * 4, this.count * 4))
  }

  /** Replaces its contents. errors: `shape.mismatch` for another number of elements. */
  assign(data: Float32Array<ArrayBuffer>): void {
    if (data.length !== this.count) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.name || 'parameter'}: expected ${this.count} elements for ${formatShape(this.shape)}, got ${data.length}. Load a file made for this model.`,
      )
    }
    if (this.#home && this.#gpu) this.#gpu.write(this.#home.pool.buffer, data, this.#home.start * 4)
    else this.#host = data.slice()
  }
}
