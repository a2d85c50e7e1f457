import type { Gpu } from '../../gpu/device.ts'
import type { CompiledPipeline } from '../../gpu/pipeline.ts'
import type { Prepared } from '../plan/prepare.ts'
import { currentLayout } from '../trace/stored-tensor.ts'
import type { ProgramBuffers } from './program-buffers.ts'

/** The dispatches of a program, ready to be encoded again and again: their pipelines, bind groups and workgroup counts. */
export class RecordedDispatches {
  readonly #gpu: Gpu
  readonly #prepared: Prepared
  readonly #buffers: ProgramBuffers
  readonly #compiled: readonly CompiledPipeline[]
  readonly #bindGroups: GPUBindGroup[] = []
  /** Workgroup counts, three a dispatch. */
  readonly #groups: Uint32Array
  /** The layout of stored tensors that the bind groups were made for. */
  #layout = -1

  constructor(
    gpu: Gpu,
    prepared: Prepared,
    buffers: ProgramBuffers,
    compiled: readonly CompiledPipeline[],
  ) {
    this.#gpu = gpu
    this.#prepared = prepared
    this.#buffers = buffers
    this.#compiled = compiled
    this.#groups = Uint32Array.from(
      prepared.plan.dispatches.flatMap(({ dispatch }) => dispatch.groups),
    )
  }

  get count(): number {
    return this.#compiled.length
  }

  /** Makes the bind groups, unless those that there are still hold. */
  bind(): void {
    if (this.#layout === currentLayout()) return
    const { device, counters } = this.#gpu
    for (const { update } of this.#prepared.updates) update.bucket.allocate(this.#gpu)
    this.#prepared.plan.dispatches.forEach(({ dispatch, bindings }, i) => {
      counters.bindGroups++
      this.#bindGroups[i] = device.createBindGroup({
        label: dispatch.label,
        layout: this.#compiled[i].layout,
        entries: this.#buffers.entries(this.#gpu, bindings),
      })
    })
    this.#layout = currentLayout()
  }

  /** Encodes the dispatches from `start` up to `end` as one pass. */
  encode(
    encoder: GPUCommandEncoder,
    start: number,
    end: number,
    descriptor?: GPUComputePassDescriptor,
  ): void {
    const pass = encoder.beginComputePass(descriptor)
    const compiled = this.#compiled
    const bindGroups = this.#bindGroups
    const groups = this.#groups
    for (let i = start; i < end; i++) {
      pass.setPipeline(compiled[i].pipeline)
      pass.setBindGroup(0, bindGroups[i])
      pass.dispatchWorkgroups(groups[3 * i], groups[3 * i + 1], groups[3 * i + 2])
    }
    pass.end()
    this.#gpu.counters.dispatches += end - start
  }
}
