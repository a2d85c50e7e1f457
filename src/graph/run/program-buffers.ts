import type { Gpu } from '../../gpu/device.ts'
import type { StagedTensor } from '../../gpu/staging.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { ceilDiv } from '../../kernels/shader.ts'
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
export type StagedInputs = readonly {
  readonly staged: StagedTensor
  readonly buffer: GPUBuffer
  readonly offset: number
}[]

/** A binding and what it binds. */
export type BoundBuffer = Required<GPUBufferBinding> & Pick<GPUBindGroupEntry, 'binding'>

/** Copies of a buffer lie at multiples of this, WebGPU's binding alignment. units: bytes. */
const copyAlignment = 256

/** Inputs, scalars, intermediates and outputs of a program on the device: one copy for each run that is computed together with others. */
export class ProgramBuffers {
  readonly inputs = new Map<string, { buffer: GPUBuffer; type: TensorType }>()
  outputs: readonly GPUBuffer[] = []
  scalars!: GPUBuffer
  readonly scalarValues: Float32Array<ArrayBuffer>
  copies = 0
  readonly #gpu: Gpu
  readonly #prepared: Prepared
  #shared: readonly GPUBuffer[] = []
  /** From a copy to the next. */
  readonly #strides = new Map<GPUBuffer, number>()

  constructor(gpu: Gpu, prepared: Prepared) {
    this.#gpu = gpu
    this.#prepared = prepared
    this.scalarValues = new Float32Array(Math.max(1, prepared.trace.scalars.size))
    this.resize(1)
  }

  /**
   * Replaces the buffers by ones for `copies` runs, filled with zeros; the old ones exist until then. Bind groups made before are no longer
   * valid. errors: `gpu.limit`, which leaves the old buffers in place.
   */
  resize(copies: number): void {
    const prepared = this.#prepared
    const before = this.#all
    const made: GPUBuffer[] = []
    const strides = new Map<GPUBuffer, number>()
    const usage = bufferUsage.STORAGE | bufferUsage.COPY_DST | bufferUsage.COPY_SRC
    const make = (label: string, sizeBytes: number) => {
      const stride = copies === 1 ? sizeBytes : ceilDiv(sizeBytes, copyAlignment) * copyAlignment
      const buffer = this.#gpu.createBuffer(label, stride * copies, usage)
      made.push(buffer)
      strides.set(buffer, stride)
      return buffer
    }
    try {
      const inputs = Object.entries(prepared.inputs).map(([name, type]) => {
        const buffer = make(`input ${name}`, countElements(type.shape) * 4)
        return [name, { buffer, type }] as const
      })
      const outputs = prepared.outputs.map(({ name, type }) =>
        make(`output ${name}`, countElements(type.shape) * 4),
      )
      const scalars = make('step scalars', this.scalarValues.byteLength)
      const shared = prepared.plan.sharedBytes.map((sizeBytes, i) =>
        make(`intermediates ${i}`, sizeBytes),
      )
      for (const [name, input] of inputs) this.inputs.set(name, input)
      Object.assign(this, { outputs, scalars })
      this.#shared = shared
    } catch (error) {
      for (const buffer of made) buffer.destroy()
      throw error
    }
    for (const buffer of before) {
      this.#strides.delete(buffer)
      buffer.destroy()
    }
    for (const [buffer, stride] of strides) this.#strides.set(buffer, stride)
    this.copies = copies
  }

  get #all(): GPUBuffer[] {
    const inputs = [...this.inputs.values()].map(({ buffer }) => buffer)
    return this.scalars ? [...inputs, ...this.outputs, ...this.#shared, this.scalars] : []
  }

  /** Bytes from a copy to the next; 0 for what there is once. */
  strideOf(buffer: GPUBuffer): number {
    return this.#strides.get(buffer) ?? 0
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

  /** Returns what a dispatch binds. */
  entries(gpu: Gpu, bindings: PlannedDispatch['bindings']): BoundBuffer[] {
    return bindings.map(({ place, sizeBytes }, binding) => {
      const { buffer, offset } = this.locate(gpu, place)
      return { binding, buffer, offset, size: sizeBytes || this.strideOf(buffer) || buffer.size }
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
    copy = 0,
  ): StagedInputs {
    const given = inputs ? checkInputs(prepared, inputs) : []
    const staged = this.writeInputs(gpu, given, copy)
    fillScalars(prepared, scalars, inputs && onHost(given), this.scalarValues, isCounted)
    gpu.write(this.scalars, this.scalarValues, copy * this.strideOf(this.scalars))
    return staged
  }

  /** Writes the inputs; returns the staged ones, whose copies the run records first. */
  writeInputs(gpu: Gpu, inputs: CheckedInputs, copy = 0): StagedInputs {
    const stagedInputs: { staged: StagedTensor; buffer: GPUBuffer; offset: number }[] = []
    for (const [name, data] of inputs) {
      const { buffer } = this.inputs.get(name)!
      const offset = copy * this.strideOf(buffer)
      if (ArrayBuffer.isView(data)) gpu.write(buffer, data, offset)
      else stagedInputs.push({ staged: data, buffer, offset })
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
    for (const buffer of this.#all) buffer.destroy()
  }
}
