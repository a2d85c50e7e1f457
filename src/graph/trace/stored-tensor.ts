import { hashWords } from '../../kernels/hash/hash-words.ts'
import { clipped } from '../../util/clipped.ts'
import {
  type DeviceSpec,
  formatDevice,
  type PlacedDevice,
  sameDevice,
  sameHardware,
} from '../../util/device.ts'
import { ArgumentTypeError, invariant, ShapeError, TabringError } from '../../util/errors.ts'
import { countOf, kindOf } from '../../util/kind-of.ts'
import { countArguments } from '../../util/plain-callers.ts'
import {
  countElements,
  type DType,
  formatShape,
  type Shape,
  type TensorType,
} from '../../util/shape.ts'
import { withArticle } from '../../util/with-article.ts'
import { deviceOf, type Memory } from '../memory/memory-device.ts'
import { Pool, poolAlignment, type StoredData } from '../memory/pool.ts'
import { requireDevice } from '../memory/require-device.ts'
import type { RankMessages } from './exchange.ts'
import { Tensor } from './tensor.ts'
import { targetDevice } from './tensor-arguments.ts'
import { activeTrace, isTracing } from './trace.ts'
import type { Holding } from './value.ts'

/** A place on the device: elements `start` and following of a pool. */
export interface Home {
  readonly pool: Pool
  readonly start: number
}

export type { StoredData } from '../memory/pool.ts'

/** errors: a TypeError, naming `where`, unless it is an array of the kind that holds this type. */
function checkArray(where: string, dtype: DType, data: StoredData): void {
  const array = dtype === 'i32' ? 'Int32Array' : 'Float32Array'
  if (ArrayBuffer.isView(data) && data[Symbol.toStringTag] === array) return
  throw new ArgumentTypeError(
    `${where}: data must be ${withArticle(array)}, got ${kindOf(data)}. Write ${array}.of(…) or ${array}.from(…).`,
  )
}

/** Hash of contents, which is never 0. */
export const markOf = ({ buffer, byteOffset, length }: StoredData): number =>
  hashWords(new Uint32Array(buffer, byteOffset, length))[0] || 1

/** A module that names its tensors when it lists them. */
interface Naming {
  modules(): Iterable<object>
  nameTensors(): void
}

/** Modules made since the last step was traced. */
const unnamed: WeakRef<Naming>[] = []

export const nameLater = (module: Naming): unknown => unnamed.push(new WeakRef(module))

/** Names the tensors of modules that nothing has listed yet, for errors. Those that cannot be listed keep their names. */
export function nameTensors(): void {
  const named = new Set<object>()
  for (const made of unnamed.splice(0)) {
    const module = made.deref()
    if (!module || named.has(module)) continue
    try {
      for (const one of module.modules()) named.add(one)
      module.nameTensors()
    } catch {
      // The caller that reads the list gets the error.
    }
  }
}

/** Counts re-layouts; a program that finds another number than at its binding binds again. */
let layoutGeneration = 0
export const currentLayout = (): number => layoutGeneration

/**
 * A tensor whose contents outlive programs: a host array until a program first needs it, then part of a pool on the device.
 *
 * Base class of parameters and module buffers.
 */
export abstract class StoredTensor<Data extends StoredData = StoredData> extends Tensor {
  /** Its state-dict key, once it belongs to a module. */
  name = ''
  /** True if someone has asked a module for a list with it, such as an optimizer's. */
  isListed = false
  /** Where the module holds it that named it. */
  heldAt: Holding | undefined
  /** errors: `graph.misuse`: contents are set by `assign`. */
  protected set data(_: never) {
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: data of ${this.title} cannot be set. Write assign(array) for new contents, and await read() to see them.`,
    )
  }
  /** Its name in quotes, for errors, or its shape where no module has named it. */
  get title(): string {
    return this.name ? `"${clipped(this.name)}"` : `a tensor ${formatShape(this.shape)}`
  }
  /** Set when a step over ranks is compiled, and by fullyShard and replicate: those ranks, and which of them has what is saved. */
  holder: { readonly ranks: Pick<RankMessages, 'broadcast'>; readonly root: number } | undefined
  /** Contents after its layer was loaded from a state that lacks it; undefined: that is an error. */
  absent: Data | undefined
  /** @internal Hash of what this rank's program has assigned since ranks that have it in common had the same; 0 for nothing. Of a part alone: 1. */
  assigned = 0
  #revision = 0
  /** Gives its current contents where the host has them too; then `read` needs no device. */
  mirror: (() => StoredData | undefined) | undefined
  #home: Home | undefined
  /** Contents, or what makes them when they are first needed; undefined while a pool has them. */
  #host: Data | (() => Data) | undefined
  #device: PlacedDevice | undefined
  #isReleased = false
  #isDestroyed = false

  /** `data`: its contents, or a function that makes them once they are needed: those that are loaded before are not made. */
  constructor(type: TensorType, data: Data | (() => Data)) {
    super()
    if (typeof data === 'function') {
      this.#host = data
      return
    }
    checkArray(this.constructor.name, type.dtype, data)
    if (data.length !== countElements(type.shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.constructor.name}: data must have the ${countElements(type.shape)} elements of shape ${formatShape(type.shape)}, got ${countOf(data)}. Check the initial data.`,
      )
    }
    // As torch.tensor: what the caller does with the array later does not change the tensor.
    this.#host = data.slice() as Data
  }

  get #hostData(): Data {
    if (typeof this.#host === 'function') this.#host = this.#host()
    return this.#host ?? this.#none
  }

  get #none(): Data {
    return (this.dtype === 'i32' ? new Int32Array() : new Float32Array()) as Data
  }

  /** The device on which it is, or to which it was moved. Before a program or `to` decides: in a step that of the program, else undefined. */
  override get device(): PlacedDevice | undefined {
    return this.#device ?? (isTracing() ? activeTrace('device').device : undefined)
  }

  /** Returns a new tensor with these contents. */
  protected abstract like(data: Data): this

  /**
   * Returns a tensor with these contents on a device: this one if it is already there, otherwise a new one; this one does not move, as in
   * PyTorch.
   *
   * Uploads happen when a program needs the tensor, and never block, regardless of PyTorch's `non_blocking`. errors: `gpu.unavailable` for
   * a WebGPU device that this tab does not have.
   */
  async copyTo(spec: DeviceSpec): Promise<this> {
    const target = targetDevice('copyTo', spec)
    await requireDevice('copyTo', target)
    if (this.#isOn(target)) return this
    const copy = this.like(await this.read())
    copy.#device = target
    return copy
  }

  /** Same as `copyTo` a WebGPU device, the current one by default. */
  webgpu(index?: number): Promise<this> {
    return this.copyTo(index ?? 'webgpu')
  }

  cpu(): Promise<this> {
    return this.copyTo('cpu')
  }

  /**
   * Moves this tensor to a device, in place; programs compiled for another device then refuse it. Resolves to undefined if it is already
   * there, or will be uploaded by the next program compiled.
   *
   * It no longer belongs to what used it before (an optimizer's buckets).
   */
  moveToDevice(target: PlacedDevice): Promise<unknown> | undefined {
    this.#mustExist()
    if (this.#isOn(target)) return undefined
    const arrive = (data: Data) => {
      this.#host = data
      this.#device = target
      return this.#leaveHome()
    }
    return this.#home ? this.read().then(arrive) : arrive(this.#hostData)
  }

  /** How often its contents were replaced by the host. */
  get revision(): number {
    return this.#revision
  }

  /** Earlier programs bind again at their next run. Resolves when memory that nothing uses any more is free. */
  #leaveHome(next?: Home): Promise<unknown> | undefined {
    const pool = this.#home?.pool
    this.#home = next
    next?.pool.enter()
    layoutGeneration++
    return pool?.leave()
  }

  #isOn(target: PlacedDevice): boolean {
    return this.#device !== undefined && sameDevice(this.#device, target)
  }

  /** Returns its place in this memory, creating one if it has none. errors: `device.mismatch`. */
  place(memory: Memory): Home {
    this.requireOn(memory, this.title)
    if (!this.#home) {
      const pool = new Pool(this.name || 'stored tensor', this.count).allocate(memory)
      this.moveTo({ pool, start: 0 })
    }
    return this.#home!
  }

  /** Throws an error starting with `what` if it is in other memory or was moved to another device. errors: `device.mismatch`. */
  requireOn(memory: Memory, what: string): void {
    this.#mustExist()
    const target = deviceOf(memory)
    const isThere = this.#home
      ? this.#home.pool.memory === memory
      : !this.#device || sameHardware(this.#device, target)
    if (isThere) return
    const own = this.#device ? formatDevice(this.#device) : 'another device'
    const wanted = formatDevice(target)
    const again = own === wanted ? ' (opened separately)' : ''
    throw new TabringError(
      'device.mismatch',
      `${what}: the program runs on ${wanted}, but this tensor is on ${own}${again}. Compile for ${own}: compile(…, { device: '${own}' }). Or call "await model.to('${wanted}')" before creating the optimizer.`,
    )
  }

  /** Moves the contents into `home`, whose pool is allocated; earlier programs bind again at their next run. */
  moveTo(home: Home): void {
    invariant(home.start % poolAlignment === 0, () => `a tensor at ${home.start} of its pool`)
    const earlier = this.#home
    if (earlier) home.pool.copyFrom(earlier.pool, earlier.start, home.start, this.count)
    else home.pool.write(this.#hostData, home.start)
    this.#host = undefined
    this.#leaveHome(home)
    const device = deviceOf(home.pool.memory!)
    if (!this.#device || !sameHardware(this.#device, device)) this.#device = device
  }

  /** Frees the contents of a tensor that another rank has. */
  release(): void {
    this.#isReleased = true
    this.#host = undefined
    this.#leaveHome()
  }

  /** True if its contents are on another rank alone. errors: `graph.misuse` once they are nowhere. */
  get isReleased(): boolean {
    this.#mustExist()
    return this.#isReleased
  }

  /** Frees the contents for good; see `Module.destroy`. */
  destroy(): void {
    this.#isDestroyed = true
    this.mirror = undefined
    this.release()
  }

  get isDestroyed(): boolean {
    return this.#isDestroyed
  }

  #mustExist(): void {
    if (!this.#isDestroyed) return
    throw new TabringError(
      'graph.misuse',
      `${this.title}: destroy() of its module has freed the contents. Make the model again, and load its state. model.cpu() frees device memory alone.`,
    )
  }

  /** Its place in a pool, if a program has given it one. */
  get home(): Home | undefined {
    return this.#home
  }

  /** Throws: use `read`. errors: `graph.misuse`. */
  override item(): never {
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}.item: its contents may be on a device. Write (await x.read())[0], outside of a step.`,
    )
  }

  /** The shape in state dicts. Where ranks hold parts of a tensor, as fullyShard makes them, it is that of the whole. */
  get stateShape(): Shape {
    return this.shape
  }

  /**
   * Contents in state dicts, of contents of this tensor's shape; undefined where another rank has them. Of a tensor that ranks share, all
   * ranks call it. errors: `peer.*`.
   */
  async stateOf(contents: Data | undefined): Promise<Data> {
    const whole = contents ? await this.wholeOf(contents) : this.#empty()
    await this.holder?.ranks.broadcast(whole, this.holder.root, { label: 'stateDict' })
    return whole
  }

  /** @internal The whole tensor, where ranks hold parts of it; all of them call it. */
  async wholeOf(contents: Data): Promise<Data> {
    return contents
  }

  #empty(): Data {
    const count = countElements(this.stateShape)
    return (this.dtype === 'i32' ? new Int32Array(count) : new Float32Array(count)) as Data
  }

  /** Returns the part of contents in state dicts that this tensor holds. */
  partOf(whole: Data): Data {
    return whole
  }

  /** Returns its current contents, read from the device if they are there alone. errors: `device.mismatch` where another rank has them. */
  async read(): Promise<Data> {
    const mirrored = this.mirror?.()
    return mirrored ? (mirrored.slice() as Data) : this.readHome()
  }

  /** Returns what the device has, if a program has put it there. errors: as `read`. */
  async readHome(): Promise<Data> {
    if (this.isReleased) {
      throw new TabringError(
        'device.mismatch',
        `${this.title}: its contents are on ${formatDevice(this.#device!)}. Read it on that rank.`,
      )
    }
    if (!this.#home) return this.#hostData.slice() as Data
    const { pool, start } = this.#home
    return (await pool.read(start, this.count, this.dtype)) as Data
  }

  /**
   * Replaces its contents; does nothing where another rank has them. errors: `shape.mismatch` for another number of elements; a TypeError for
   * another kind of array.
   */
  assign(data: Data): void {
    this.receive(data)
    this.assigned = data.length === countElements(this.stateShape) ? markOf(data) : 1
  }

  /** @internal Resolves when a state can be loaded into it. Of what ranks share, all of them call it. */
  prepareLoad?(): Promise<void>

  /** @internal Throws where contents of a state cannot be its own, before any of the state is loaded. */
  mustTake?(data: StoredData): void

  /** @internal The same of contents in state dicts, of which this tensor may hold a part. */
  assignWhole(whole: Data): void {
    this.receive(this.partOf(whole))
    this.assigned = markOf(whole)
  }

  /** @internal The same of contents that ranks have exchanged. errors: as `assign`. */
  receive(data: Data): void {
    checkArray(this.title, this.dtype, data)
    if (data.length !== this.count) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.title}: expected ${this.count} elements for ${formatShape(this.value.type.shape)}, got ${data.length}. Load a file saved for this model.`,
      )
    }
    this.assigned = 0
    if (this.isReleased) return
    this.#revision++
    if (this.#home) this.#home.pool.write(data, this.#home.start)
    else this.#host = data.slice() as Data
  }
}

countArguments(StoredTensor, { item: Number.POSITIVE_INFINITY })
