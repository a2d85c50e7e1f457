import type { Gpu } from './device.ts'
import { download } from './readback.ts'
import { bufferUsage } from './usage.ts'

/** Queries that a set may hold. */
const maxQueries = 4096

/** Times compute passes by timestamp queries, one pass a slot. */
export class PassClock {
  readonly #gpu: Gpu
  readonly #sets: GPUQuerySet[] = []
  readonly #resolved: GPUBuffer
  readonly #slots: number

  /** The device must have `timestamp-query`. */
  constructor(gpu: Gpu, slots: number) {
    this.#gpu = gpu
    this.#slots = slots
    for (let first = 0; first < 2 * slots; first += maxQueries) {
      const count = Math.min(maxQueries, 2 * slots - first)
      this.#sets.push(gpu.device.createQuerySet({ type: 'timestamp', count }))
    }
    this.#resolved = gpu.createBuffer(
      'timestamps',
      slots * 16,
      bufferUsage.QUERY_RESOLVE | bufferUsage.COPY_SRC,
    )
  }

  /** A pass that notes its times in `slot`; of several passes that share one, the first notes its begin, the last its end. */
  pass(slot: number, isFirst = true, isLast = true): GPUComputePassDescriptor {
    if (!isFirst && !isLast) return {}
    const query = 2 * slot
    return {
      timestampWrites: {
        querySet: this.#sets[Math.floor(query / maxQueries)],
        ...(isFirst && { beginningOfPassWriteIndex: query % maxQueries }),
        ...(isLast && { endOfPassWriteIndex: (query % maxQueries) + 1 }),
      },
    }
  }

  /** Records the way of all times from the queries to `staging`: 16 bytes a slot. */
  resolve(encoder: GPUCommandEncoder, staging: GPUBuffer): void {
    this.#resolve(encoder)
    encoder.copyBufferToBuffer(this.#resolved, 0, staging, 0, this.#slots * 16)
  }

  /** Begin and end of each slot's newest pass in nanoseconds of the device's own clock; zeros for a slot that had none. */
  async read(): Promise<BigUint64Array> {
    const encoder = this.#gpu.device.createCommandEncoder({ label: 'timestamps' })
    this.#resolve(encoder)
    this.#gpu.submit(encoder)
    return new BigUint64Array(await download(this.#gpu, this.#resolved, 0, this.#slots * 16))
  }

  #resolve(encoder: GPUCommandEncoder): void {
    this.#sets.forEach((set, i) => {
      encoder.resolveQuerySet(set, 0, set.count, this.#resolved, i * maxQueries * 8)
    })
  }

  destroy(): void {
    for (const set of this.#sets) set.destroy()
    this.#resolved.destroy()
  }
}
