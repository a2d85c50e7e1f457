import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { countElements } from '../../util/shape.ts'
import type { Prepared } from '../plan/prepare.ts'
import type { GradientExchange } from '../trace/exchange.ts'
import type { ProgramBuffers } from './program-buffers.ts'

/** Runs an exchange, and times it. */
type RunExchange = <T>(run: (onMet: () => void) => Promise<T>) => Promise<T>

/**
 * Where the ranks of a program on a device meet in the middle of forward or backward (`kernels/meet`), one after the other.
 *
 * cost: a submit, a copy to the host and an exchange each; the device waits meanwhile.
 */
export class Meetings {
  readonly #gpu: Gpu
  readonly #exchange: GradientExchange
  readonly #prepared: Prepared
  readonly #buffers: ProgramBuffers
  /** One at a time: as large as the largest. */
  readonly #staging: GPUBuffer

  private constructor(
    gpu: Gpu,
    exchange: GradientExchange,
    prepared: Prepared,
    buffers: ProgramBuffers,
  ) {
    this.#gpu = gpu
    this.#exchange = exchange
    this.#prepared = prepared
    this.#buffers = buffers
    const counts = prepared.meetings.map(({ node }) => countElements(node.inputs[0].type.shape))
    this.#staging = gpu.createBuffer(
      'readback of meetings',
      4 * Math.max(...counts),
      GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    )
  }

  /** Those of a program; undefined where it has none. */
  static of(gpu: Gpu, prepared: Prepared, buffers: ProgramBuffers): Meetings | undefined {
    const { forwarded } = prepared.trace
    if (!forwarded || prepared.meetings.length === 0) return undefined
    return new Meetings(gpu, forwarded, prepared, buffers)
  }

  get exchange(): GradientExchange {
    return this.#exchange
  }

  /**
   * Submits what is recorded up to a meeting and writes what all ranks' values make; a shadow's values are zeros.
   *
   * `around` runs the exchange. errors: the exchange's.
   */
  async hold(
    index: number,
    encoder: GPUCommandEncoder,
    isShadow = false,
    around: RunExchange = (run) => run(() => undefined),
  ): Promise<void> {
    const gpu = this.#gpu
    const place = this.#prepared.meetings[index]
    const { node } = place
    const [x] = node.inputs
    const count = countElements(x.type.shape)
    let own = new Float32Array(count)
    if (!isShadow) {
      const from = this.#buffers.locate(gpu, this.#prepared.plan.placeOf(x))
      encoder.copyBufferToBuffer(from.buffer, from.offset, this.#staging, 0, count * 4)
    }
    gpu.submit(encoder)
    if (!isShadow) {
      await mapped(gpu, this.#staging)
      own = new Float32Array(this.#staging.getMappedRange(0, count * 4).slice(0))
      this.#staging.unmap()
    }
    const all = await around((onMet) => this.#exchange.meet(index, own, place, onMet))
    if (isShadow) return
    const to = this.#buffers.locate(gpu, this.#prepared.plan.placeOf(node.outputs[0]))
    gpu.write(to.buffer, all, to.offset)
  }

  destroy(): void {
    this.#staging.destroy()
  }
}
