import type { Gpu } from '../../gpu/device.ts'
import type { StagedTensor } from '../../gpu/staging.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { countElements, type TensorType } from '../../util/shape.ts'
import type { Place, PlannedDispatch } from '../plan/plan.ts'
import type { Prepared } from '../plan/prepare.ts'
import {
  type CheckedInputs,
  checkInputs,
  fillScalars,
  onHost,
  type RunInputs,
} from '../plan/step-program.ts'

/** Staged inputs of one run, each with the buffer that it goes to. */
export type StagedInputs = readonly { readonly staged: StagedTensor; readonly buffer: GPUBuffer }[]

/** Inputs, scalars, intermediates and outputs of a program on the device. */
export class ProgramBuffers {
  readonly inputs = new Map<string, { buffer: GPUBuffer; type: TensorType }>()
  readonly outputs: GPUBuffer[]
  readonly scalars: GPUBuffer
  readonly scalarValues: Float32Array<ArrayBuffer>
  readonly #shared: GPUBuffer[]

  constructor(gpu: Gpu, prepared: Prepared) {
    const storage = bufferUsage.STORAGE | bufferUsage.COPY_DST | bufferUsage.COPY_SRC
    for (const [name, type] of Object.entries(prepared.inputs)) {
      const sizeBytes = countElements(type.shape) * 4
      this.inputs.set(name, { buffer: gpu.createBuffer(`input ${name}`, sizeBytes, storage), type })
    }
    this.outputs = prepared.outputs.map(({ name, type }) =>
      gpu.createBuffer(`output ${name}`, countElements(type.shape) * 4, storage),
    )
    this.scalarValues = new Float32Array(Math.max(1, prepared.trace.scalars.size))
    this.scalars = gpu.createBuffer('step scalars', this.scalarValues.byteLength, storage)
    this.#shared = prepared.plan.sharedBytes.map((sizeBytes, i) =>
      gpu.createBuffer(`intermediates ${i}`, sizeBytes, storage),
    )
  }

  /** The buffer and byte offset of a place. */
  locate(gpu: Gpu, place: Place): { buffer: GPUBuffer; offset: number } {
    switch (place.kind) {
      case 'input':
        return { buffer: this.inputs.get(place.name)!.buffer, offset: 0 }
      case 'output':
        return { buffer: this.outputs[place.index], offset: 0 }
      case 'shared':
        return { buffer: this.#shared[place.object], offset: place.offset }
      case 'scalars':
        return { buffer: this.scalars, offset: 0 }
      case 'pool':
        return { buffer: place.pool.allocate(gpu).buffer, offset: place.start * 4 }
      case 'stored': {
        const { pool, start } = place.tensor.place(gpu)
        return { buffer: pool.buffer, offset: start * 4 }
      }
    }
  }

  /** Returns the entries of a dispatch's bind group. */
  entries(gpu: Gpu, bindings: PlannedDispatch['bindings']): GPUBindGroupEntry[] {
    return bindings.map(({ place, sizeBytes }, binding) => {
      const { buffer, offset } = this.locate(gpu, place)
      return { binding, resource: { buffer, offset, size: sizeBytes || buffer.size } }
    })
  }

  /**
   * Writes the inputs, which a shadow has none of, and the scalars, counting a step unless the caller says not to; returns the staged inputs, whose
   * copies the run records first.
   *
   * errors: `graph.misuse` for a missing input, a wrong type or length, a staged tensor that a run has used.
   */
  write(
    gpu: Gpu,
    prepared: Prepared,
    inputs: RunInputs | undefined,
    scalars: Readonly<Record<string, number>>,
    isCounted = true,
  ): StagedInputs {
    const given = inputs ? checkInputs(prepared, inputs) : []
    const staged = this.writeInputs(gpu, given)
    fillScalars(prepared, scalars, inputs && onHost(given), this.scalarValues, isCounted)
    gpu.write(this.scalars, this.scalarValues)
    return staged
  }

  /** Writes the inputs; returns the staged ones, whose copies the run records first. */
  writeInputs(gpu: Gpu, inputs: CheckedInputs): StagedInputs {
    const stagedInputs: { staged: StagedTensor; buffer: GPUBuffer }[] = []
    for (const [name, data] of inputs) {
      const { buffer } = this.inputs.get(name)!
      if (ArrayBuffer.isView(data)) gpu.write(buffer, data)
      else stagedInputs.push({ staged: data, buffer })
    }
    return stagedInputs
  }

  /** Sizes of the buffers as they were made. */
  get intermediateBytes(): number {
    return this.#shared.reduce((sum, { size }) => sum + size, 0)
  }
  get ioBytes(): number {
    const inputs = [...this.inputs.values()].map(({ buffer }) => buffer)
    return [...inputs, ...this.outputs, this.scalars].reduce((sum, { size }) => sum + size, 0)
  }

  destroy(): void {
    for (const { buffer } of this.inputs.values()) buffer.destroy()
    for (const buffer of [...this.outputs, ...this.#shared, this.scalars]) buffer.destroy()
  }
}
