import type { PlacedDevice } from '../../util/device.ts'
import type { Memory } from '../memory/memory-device.ts'
import { alignInPool, Pool, poolAlignment } from '../memory/pool.ts'
import type { RankGroup, StepCollectives } from './exchange.ts'
import type { Parameter } from './parameter.ts'

/** Room for scalar outputs behind each bucket on the wire; one alignment unit, so that slices stay aligned. */
export const tailElements = poolAlignment

/**
 * Parameters whose gradients travel and update together, and which the same ranks share: one pool of parameters, one of gradients, the same layout in both.
 *
 * `elements` is the pools' length, a multiple of the alignment.
 */
export class Bucket {
  readonly index: number
  readonly parameters: readonly Parameter[]
  /** First element of each parameter in the pools. */
  readonly starts: readonly number[]
  readonly elements: number
  readonly parameterPool: Pool
  readonly gradientPool: Pool
  /** Optimizer state by name, made by the optimizer; this rank's part only. */
  readonly state = new Map<string, Pool>()
  #accumulated: Pool | undefined
  #programs = 0

  /** The device of all its parameters; undefined until a program or `to` decides. */
  readonly device: PlacedDevice | undefined

  constructor(index: number, parameters: readonly Parameter[], device?: PlacedDevice) {
    this.index = index
    this.parameters = parameters
    this.device = device
    let elements = 0
    this.starts = parameters.map((parameter) => {
      const start = elements
      elements += alignInPool(parameter.count)
      return start
    })
    this.elements = elements
    this.parameterPool = this.newPool('parameters', elements)
    this.gradientPool = this.newPool('gradients', elements)
    this.parameterPool.whenEmpty = () => this.#left()
  }

  /** A program on a device uses it from now on. */
  addProgram(): void {
    this.#programs++
  }

  /** A program is gone. No other program reads the gradients that the last one leaves. */
  removeProgram(): void {
    this.#programs--
    if (this.#programs > 0) return
    this.gradientPool.destroy()
    this.#accumulated?.destroy()
  }

  /** All parameters have left. The optimizer's state waits on the host, unless they are gone for good. */
  #left(): Promise<unknown> | undefined {
    if (this.parameters.every(({ isDestroyed }) => isDestroyed)) {
      this.destroy()
      return undefined
    }
    this.parameterPool.destroy()
    this.gradientPool.destroy()
    const kept = [...this.state.values(), ...(this.#accumulated ? [this.#accumulated] : [])]
    return Promise.all(kept.map((pool) => pool.toHost()))
  }

  /** The ranks that have the rest of its parameters, where each has a part. */
  get sharedBy(): RankGroup | undefined {
    return this.parameters[0]?.sharedBy
  }

  /** A pool beside its parameters. */
  newPool(what: string, elements: number): Pool {
    const names = [this.parameters[0], this.parameters[this.parameters.length - 1]].map(
      ({ name }) => name,
    )
    const of = [...new Set(names)].join(' to ')
    return new Pool(`${what} of bucket ${this.index}: ${of}`, elements, this.device)
  }

  /** Gradients of earlier micro-steps, the same layout; made at its first use. */
  get accumulatedPool(): Pool {
    this.#accumulated ??= this.newPool('accumulated gradients', this.elements)
    return this.#accumulated
  }

  /** Elements that travel: the bucket's own, then a tail in which the step's scalar outputs ride along. */
  get wireElements(): number {
    return this.elements + tailElements
  }

  /** Elements [start, end) that this rank updates: its chunk of what travels, without the tail. */
  ownSlice(exchange: (RankGroup & Pick<StepCollectives, 'chunk'>) | undefined): {
    start: number
    end: number
  } {
    if (!exchange || exchange.size === 1) return { start: 0, end: this.elements }
    const { start, end } = exchange.chunk(this.wireElements, exchange.rank)
    return { start: Math.min(start, this.elements), end: Math.min(end, this.elements) }
  }

  /** Frees the pools; the parameters in them are gone. */
  destroy(): void {
    for (const pool of [this.parameterPool, this.gradientPool, ...this.state.values()])
      pool.destroy()
    this.#accumulated?.destroy()
  }

  /** Makes the pools and moves in the parameters that are not there. errors: `device.mismatch`. */
  allocate(memory: Memory): void {
    for (const parameter of this.parameters) parameter.requireOn(memory, parameter.name)
    this.gradientPool.allocate(memory)
    this.parameterPool.allocate(memory)
    this.parameters.forEach((parameter, i) => {
      if (parameter.home?.pool === this.parameterPool) return
      parameter.moveTo({ pool: this.parameterPool, start: this.starts[i] })
    })
  }
}

/**
 * Cuts parameters, given in the order in which backward completes their gradients, into buckets of at most `capBytes`, the very first one
 * of at most `firstCapBytes` (a larger parameter has a bucket to itself).
 *
 * source: PyTorch's Reducer; unlike it, the order is the traced one from the first step on, so buckets are never rebuilt.
 */
export function layOutBuckets(
  ordered: readonly Parameter[],
  capBytes: number,
  firstIndex: number,
  firstCapBytes = capBytes,
  device?: PlacedDevice,
): Bucket[] {
  const groups: Parameter[][] = []
  let openBytes = 0
  for (const parameter of ordered) {
    const bytes = alignInPool(parameter.count) * 4
    const cap = firstIndex === 0 && groups.length === 1 ? firstCapBytes : capBytes
    if (groups.length === 0 || openBytes + bytes > cap) {
      groups.push([])
      openBytes = 0
    }
    groups[groups.length - 1].push(parameter)
    openBytes += bytes
  }
  return groups.map((parameters, offset) => new Bucket(firstIndex + offset, parameters, device))
}
