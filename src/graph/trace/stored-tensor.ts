import {
  type DeviceSpec,
  formatDevice,
  type PlacedDevice,
  placedDevice,
  sameDevice,
} from '../../util/device.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { countElements, formatShape, type TensorType } from '../../util/shape.ts'
import { deviceOf, type Memory } from '../memory/memory-device.ts'
import { Pool, type StoredData } from '../memory/pool.ts'
import { requireDevice } from '../memory/require-device.ts'
import { Tensor } from './tensor.ts'

/** A place on the device: elements `start` and following of a pool. */
export interface Home {
  readonly pool: Pool
  readonly start: number
}

export type { StoredData } from '../memory/pool.ts'

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
  #device: PlacedDevice | undefined

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

  /** The device that it lives on or was sent to; undefined until a program or `to` decides. */
  get device(): PlacedDevice | undefined {
    return this.#device
  }

  /** A new tensor with these contents. */
  protected abstract like(data: Data): this

  /**
   * Returns a tensor with these contents on a device: this one if it is there, else a new one; this one stays where it is, as in PyTorch.
   *
   * Nothing uploads before a program needs it, and no upload blocks, whatever PyTorch's `non_blocking` would say. errors: `gpu.unavailable`
   * for a WebGPU device that this tab does not have.
   */
  async to(spec: DeviceSpec): Promise<this> {
    const target = placedDevice(spec)
    await requireDevice('to', target)
    if (this.#isOn(target)) return this
    const copy = this.like(await this.read())
    copy.#device = target
    return copy
  }

  /** `to` a WebGPU device: the current one unless told. */
  webgpu(index?: number): Promise<this> {
    return this.to(index ?? 'webgpu')
  }

  cpu(): Promise<this> {
    return this.to('cpu')
  }

  /**
   * Moves this tensor itself to a device; programs compiled for another one refuse it from then on. Undefined: it is there already, and
   * programs that are compiled next find it there.
   *
   * What it was part of before (an optimizer's buckets) stays behind.
   */
  moveToDevice(target: PlacedDevice): Promise<void> | undefined {
    if (this.#isOn(target)) return undefined
    const arrive = (data: Data) => {
      this.#host = data
      this.#home = undefined
      this.#device = target
      layoutGeneration++
    }
    if (this.#home) return this.read().then(arrive)
    arrive(this.#host)
    return undefined
  }

  #isOn(target: PlacedDevice): boolean {
    return this.#device !== undefined && sameDevice(this.#device, target)
  }

  /** Where it lives in this memory, making a place of its own if it has none. errors: `device.mismatch`. */
  place(memory: Memory): Home {
    this.requireOn(memory, this.name || 'stored tensor')
    if (!this.#home) {
      const pool = new Pool(this.name || 'stored tensor', this.count).allocate(memory)
      this.moveTo({ pool, start: 0 })
    }
    return this.#home!
  }

  /** errors: `device.mismatch`, beginning with `what`, when it is in other memory or was sent to another device. */
  requireOn(memory: Memory, what: string): void {
    const target = deviceOf(memory)
    const isThere = this.#home
      ? this.#home.pool.memory === memory
      : !this.#device || sameDevice(this.#device, target)
    if (isThere) return
    const own = this.#device ? formatDevice(this.#device) : 'another device'
    const wanted = formatDevice(target)
    const again = own === wanted ? ' as opened another time' : ''
    throw new TabringError(
      'device.mismatch',
      `${what}: expected ${wanted}, where the program runs, got ${own}${again}. Call "await model.to('${wanted}')" before the optimizer is made, or compile for ${own}.`,
    )
  }

  /** Moves the contents into `home`, whose pool is allocated; earlier programs bind again at their next run. */
  moveTo(home: Home): void {
    const earlier = this.#home
    if (earlier) home.pool.copyFrom(earlier.pool, earlier.start, home.start, this.count)
    else home.pool.write(this.#host, home.start)
    this.#home = home
    this.#device = deviceOf(home.pool.memory!)
    layoutGeneration++
  }

  /** Its home, if a program has given it one. */
  get home(): Home | undefined {
    return this.#home
  }

  /** Its contents as they are now: from the device where it lives there. */
  async read(): Promise<Data> {
    if (!this.#home) return this.#host.slice() as Data
    const { pool, start } = this.#home
    return (await pool.read(start, this.count, this.dtype)) as Data
  }

  /** Replaces its contents. errors: `shape.mismatch` for another number of elements. */
  assign(data: Data): void {
    if (data.length !== this.count) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.name || 'stored tensor'}: expected ${this.count} elements for ${formatShape(this.shape)}, got ${data.length}. Load a file made for this model.`,
      )
    }
    if (this.#home) this.#home.pool.write(data, this.#home.start)
    else this.#host = data.slice() as Data
  }
}
