import { bufferUsage, mapMode } from '../gpu/usage.ts'
import type { Runtime } from '../graph/memory/runtime.ts'
import type { HostArray, Op, OpCall, Variant } from '../kernels/op.ts'
import { bytesOf, countElements, type TensorType } from '../util/shape.ts'

/** Where single ops run. */
export type OpDevice = Pick<Runtime, 'gpu' | 'pipelines'>

const guardBytes = 256
/** A bit pattern that is a NaN as f32 and unlikely as an integer. */
const marker = 0x7fc0_dead

export interface OpRun {
  /** Raw 32-bit words of each output, then of each updated input. */
  outputs: Uint32Array[]
  updated: Uint32Array[]
  /** True if every guard word around every tensor is intact, and inputs that are only read are unchanged. */
  guardsIntact: boolean
  inputsIntact: boolean
  /** Output words that still hold the marker. */
  unwritten: number
}

/** Numbers that are halves exactly, two to a word; the float32 bits of a normal half are its own with more zeros. */
function packHalves(values: HostArray): Uint32Array<ArrayBuffer> {
  const bits = (value: number): number => {
    const sign = Object.is(Math.sign(value), -0) || value < 0 ? 0x8000 : 0
    const size = Math.abs(value)
    if (size < 2 ** -14) return sign | (size * 2 ** 24)
    const [word] = new Uint32Array(Float32Array.of(size).buffer)
    return sign | ((word >>> 13) - (112 << 10))
  }
  const words = new Uint32Array(Math.ceil(values.length / 2))
  for (let i = 0; i < values.length; i++) words[i >> 1] |= bits(values[i]) << ((i & 1) * 16)
  return words
}

export const toWords = (values: HostArray, type: TensorType): Uint32Array<ArrayBuffer> =>
  type.dtype === 'f16'
    ? packHalves(values)
    : type.dtype === 'f32'
      ? new Uint32Array(Float32Array.from(values as Float64Array).buffer)
      : Uint32Array.from(values as Int32Array)

/**
 * Runs one variant of an op.
 *
 * Every tensor sits between guard words inside its buffer; outputs start as a marker pattern, so a missing or stray write shows.
 */
export async function runOp<A>(
  { gpu, pipelines }: OpDevice,
  op: Op<A>,
  variant: Variant<A>,
  call: OpCall<A>,
  inputs: readonly HostArray[],
  scalars: readonly number[] = [],
): Promise<OpRun> {
  const { device } = gpu
  const lowering = variant.lower(call)
  const usage = bufferUsage.STORAGE | bufferUsage.COPY_SRC | bufferUsage.COPY_DST
  const make = (type: TensorType, contents?: Uint32Array) => {
    const count = countElements(type.shape) === 0 ? 0 : bytesOf(type) / 4
    const bodyBytes = Math.max(256, Math.ceil((count * 4) / 256) * 256)
    const words = new Uint32Array((bodyBytes + 2 * guardBytes) / 4).fill(marker)
    if (contents) words.set(contents, guardBytes / 4)
    const buffer = gpu.createBuffer('test', words.byteLength, usage)
    gpu.write(buffer, words)
    return { buffer, words, count, sizeBytes: Math.max(4, count * 4) }
  }
  const ins = inputs.map((values, i) => make(call.inputs[i], toWords(values, call.inputs[i])))
  const outs = op.isInPlace ? [] : call.outputs.map((type) => make(type))
  const scratch = (lowering.scratch ?? []).map((type) => make(type))
  const scalarBuffer = make(
    { shape: [Math.max(1, scalars.length)], dtype: 'f32' },
    new Uint32Array(Float32Array.from(scalars).buffer),
  )
  const encoder = device.createCommandEncoder()
  for (const step of lowering.dispatches) {
    const { pipeline, layout } = await pipelines.get(step)
    const entries = step.bindings.map(({ operand }, binding) => {
      const tensor =
        operand === 'scalars'
          ? scalarBuffer
          : 'in' in operand
            ? ins[operand.in]
            : 'out' in operand
              ? outs[operand.out]
              : scratch[operand.scratch]
      return {
        binding,
        resource: { buffer: tensor.buffer, offset: guardBytes, size: tensor.sizeBytes },
      }
    })
    const pass = encoder.beginComputePass()
    pass.setPipeline(pipeline)
    pass.setBindGroup(0, device.createBindGroup({ layout, entries }))
    pass.dispatchWorkgroups(...step.groups)
    pass.end()
  }
  const readback = [...ins, ...outs].map((tensor) => {
    const staging = gpu.createBuffer(
      'staging',
      tensor.words.byteLength,
      bufferUsage.MAP_READ | bufferUsage.COPY_DST,
    )
    encoder.copyBufferToBuffer(tensor.buffer, 0, staging, 0, tensor.words.byteLength)
    return { tensor, staging }
  })
  gpu.submit(encoder)
  let guardsIntact = true
  let inputsIntact = true
  const contents: Uint32Array[] = []
  for (const [index, { tensor, staging }] of readback.entries()) {
    await gpu.wait(staging.mapAsync(mapMode.READ))
    const words = new Uint32Array(staging.getMappedRange().slice(0))
    staging.destroy()
    tensor.buffer.destroy()
    const start = guardBytes / 4
    const end = start + tensor.count
    guardsIntact &&= words.every((word, i) => (i >= start && i < end) || word === marker)
    contents.push(words.slice(start, end))
    const isReadOnly = index < ins.length && !op.updates?.includes(index)
    if (isReadOnly) inputsIntact &&= words.every((word, i) => word === tensor.words[i])
  }
  for (const tensor of [...scratch, scalarBuffer]) tensor.buffer.destroy()
  const outputs = contents.slice(ins.length)
  return {
    outputs,
    updated: (op.updates ?? []).map((i) => contents[i]),
    guardsIntact,
    inputsIntact,
    unwritten: outputs.reduce((sum, words) => sum + words.filter((w) => w === marker).length, 0),
  }
}
