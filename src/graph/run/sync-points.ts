import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import type { Prepared } from '../plan/prepare.ts'
import type { PreparedSyncPoint } from '../plan/stops.ts'
import type { StepSyncPoints } from '../trace/exchange.ts'
import type { ProgramBuffers } from './program-buffers.ts'

/** Runs an exchange, and times it. */
export type RunExchange = <T>(run: (onAllBegun: () => void) => Promise<T>) => Promise<T>

export const untimed: RunExchange = (run) => run(() => undefined)

/** Where the values of a sync point are read back; `free` when they have been. */
interface Staging {
  readonly buffer: GPUBuffer
  free: Promise<unknown>
}

/**
 * Where the ranks of a program on a device synchronize in the middle of forward or backward (`kernels/sync-ranks`).
 *
 * cost: a submit, a copy to the host and an exchange each. The device computes meanwhile, up to where the results are read.
 */
export class SyncPoints {
  readonly #gpu: Gpu
  readonly #syncPoints: StepSyncPoints
  readonly #prepared: Prepared
  readonly #buffers: ProgramBuffers
  /** Used in turns, so that one sync point is read back while the next is recorded. */
  readonly #stagings: readonly Staging[]
  readonly #results = new Map<PreparedSyncPoint, Promise<Float32Array<ArrayBuffer>>>()
  #turn = 0

  private constructor(
    gpu: Gpu,
    syncPoints: StepSyncPoints,
    prepared: Prepared,
    buffers: ProgramBuffers,
  ) {
    this.#gpu = gpu
    this.#syncPoints = syncPoints
    this.#prepared = prepared
    this.#buffers = buffers
    const sizeBytes = 4 * Math.max(...prepared.syncPoints.map(({ given }) => given.length))
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#stagings = Array.from({ length: Math.min(2, prepared.syncPoints.length) }, (_, i) => ({
      buffer: gpu.createBuffer(`readback of meetings ${i}`, sizeBytes, usage),
      free: Promise.resolve(),
    }))
  }

  /** Those of a program; undefined where it has none. */
  static of(gpu: Gpu, prepared: Prepared, buffers: ProgramBuffers): SyncPoints | undefined {
    const { syncPoints } = prepared.trace
    if (!syncPoints || prepared.syncPoints.length === 0) return undefined
    return new SyncPoints(gpu, syncPoints, prepared, buffers)
  }

  get sizeBytes(): number {
    return this.#stagings.reduce((sum, { buffer }) => sum + buffer.size, 0)
  }

  /**
   * Submits what is recorded and begins to exchange the values that it leaves. `isShadow`: this rank's are zeros. `around` runs the
   * exchange.
   */
  async begin(
    syncPoint: PreparedSyncPoint,
    encoder: GPUCommandEncoder,
    isShadow = false,
    around = untimed,
  ): Promise<void> {
    const gpu = this.#gpu
    const { given } = syncPoint
    let values: Promise<Float32Array<ArrayBuffer>>
    if (isShadow) {
      gpu.submit(encoder)
      values = Promise.resolve(new Float32Array(given.length))
    } else {
      const staging = this.#stagings[this.#turn++ % this.#stagings.length]
      await staging.free
      for (const { value, start, wire, count } of given.rows) {
        const from = this.#buffers.locate(gpu, this.#prepared.plan.placeOf(value))
        encoder.copyBufferToBuffer(
          from.buffer,
          from.offset + 4 * start,
          staging.buffer,
          4 * wire,
          4 * count,
        )
      }
      gpu.submit(encoder)
      values = this.#read(staging.buffer, given.length)
      staging.free = values.catch(() => undefined)
    }
    const { number } = syncPoint
    const result = values.then((own) =>
      around((onAllBegun) => this.#syncPoints.syncRanks(number, own, syncPoint, onAllBegun)),
    )
    result.catch(() => undefined)
    this.#results.set(syncPoint, result)
  }

  /** Waits for what the ranks have made and writes it behind what is submitted. errors: the exchange's. */
  async end(syncPoint: PreparedSyncPoint, isShadow = false): Promise<void> {
    const gpu = this.#gpu
    const all = await this.#results.get(syncPoint)!
    this.#results.delete(syncPoint)
    if (isShadow) return
    for (const { value, start, wire, count } of syncPoint.taken.rows) {
      const to = this.#buffers.locate(gpu, this.#prepared.plan.placeOf(value))
      gpu.write(to.buffer, all.subarray(wire, wire + count), to.offset + 4 * start)
    }
  }

  async #read(staging: GPUBuffer, length: number): Promise<Float32Array<ArrayBuffer>> {
    await mapped(this.#gpu, staging)
    const values = new Float32Array(staging.getMappedRange(0, 4 * length).slice(0))
    staging.unmap()
    return values
  }

  destroy(): void {
    for (const { buffer } of this.#stagings) buffer.destroy()
  }
}
