import { Pool } from '../graph/memory/pool.ts'
import type { Bucket } from '../graph/trace/bucket.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import type { PlacedDevice } from '../util/device.ts'

/**
 * Parameters of a group that have made the same updates, and so share a count of them.
 *
 * PyTorch counts by parameter: one that joins a run late begins at 1. Here those that join together do.
 */
export class Cohort {
  readonly buckets: readonly Bucket[]
  readonly device: PlacedDevice
  /** Updates begun so far, also those that a GradScaler left out. */
  steps: number
  #leftOut: Pool | undefined

  constructor(buckets: readonly Bucket[], steps: number, device: PlacedDevice) {
    this.buckets = buckets
    this.steps = steps
    this.device = device
  }

  get parameters(): Parameter[] {
    return this.buckets.flatMap(({ parameters }) => parameters)
  }

  /** Updates that a GradScaler left out: a counter on the device, made at its first use. */
  get leftOut(): Pool {
    this.#leftOut ??= new Pool('updates left out', 1, this.device)
    return this.#leftOut
  }

  /** Continues after `steps` updates. */
  restart(steps: number): void {
    this.steps = steps
    this.#leftOut?.write(new Float32Array(1))
  }

  /** Updates made. cost: with a GradScaler a copy and a wait for the device. */
  async updates(): Promise<number> {
    return this.#leftOut ? this.steps - (await this.#leftOut.read())[0] : this.steps
  }
}
