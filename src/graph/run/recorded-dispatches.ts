import type { Gpu } from '../../gpu/device.ts'
import type { CompiledPipeline } from '../../gpu/pipeline.ts'
import type { TogetherPass } from '../../gpu/together-pass.ts'
import { invariant } from '../../util/errors.ts'
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
  /** By dispatch and binding: bytes from what one of several runs has there to what the next one has. */
  readonly #strides: (readonly number[])[] = []
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
    const { together } = this.#prepared.plan
    for (const { update } of this.#prepared.updates) update.bucket.allocate(this.#gpu)
    this.#prepared.plan.dispatches.forEach(({ dispatch, bindings }, i) => {
      counters.bindGroups++
      const entries = this.#buffers.entries(this.#gpu, bindings)
      this.#strides[i] = entries.map(({ buffer }, binding) =>
        together?.[i].isCommon[binding] ? 0 : this.#buffers.strideOf(buffer),
      )
      this.#bindGroups[i] = device.createBindGroup({
        label: dispatch.label,
        layout: this.#compiled[i].layout,
        entries: entries.map(({ binding, ...resource }) => ({ binding, resource })),
      })
    })
    this.#layout = currentLayout()
  }

  /** Makes the bind groups again: the program's buffers are others. */
  forget(): void {
    this.#layout = -1
  }

  /** Encodes the dispatches from `start` up to `end` as one pass, for `runs` runs; on a GPU for one. */
  encode(
    encoder: GPUCommandEncoder,
    start: number,
    end: number,
    descriptor?: GPUComputePassDescriptor,
    runs = 1,
  ): void {
    const pass = encoder.beginComputePass(descriptor)
    if (this.#gpu.id.type === 'cpu')
      this.#encodeTogether(pass as unknown as TogetherPass, start, end, runs)
    else this.#encodeEach(pass, start, end)
    pass.end()
    this.#gpu.counters.dispatches += end - start
  }

  #encodeTogether(pass: TogetherPass, start: number, end: number, runs: number): void {
    const { dispatches, together } = this.#prepared.plan
    const stageOf = (i: number, groupsAPiece = 1) => ({
      pipeline: this.#compiled[i].pipeline,
      group: this.#bindGroups[i],
      strides: this.#strides[i],
      groups: dispatches[i].dispatch.groups,
      groupsAPiece,
    })
    for (let i = start; i < end; i++) {
      const piece = together?.[i].piece
      // Profile and value check encode each dispatch separately.
      const isCut = piece && i + 1 === end
      invariant(
        !isCut || runs === 1,
        () => `"${dispatches[i].dispatch.label}" is cut from what reads it`,
      )
      if (piece && !isCut) {
        pass.dispatchTogether([stageOf(i, piece[0]), stageOf(i + 1, piece[1])], runs)
        i++
      } else pass.dispatchTogether([stageOf(i)], together?.[i].isOnce ? 1 : runs)
    }
  }

  #encodeEach(pass: GPUComputePassEncoder, start: number, end: number): void {
    const compiled = this.#compiled
    const bindGroups = this.#bindGroups
    const groups = this.#groups
    for (let i = start; i < end; i++) {
      pass.setPipeline(compiled[i].pipeline)
      pass.setBindGroup(0, bindGroups[i])
      pass.dispatchWorkgroups(groups[3 * i], groups[3 * i + 1], groups[3 * i + 2])
    }
  }
}
