import type { Gpu } from '../../gpu/device.ts'
import { download } from '../../gpu/readback.ts'
import { difference } from '../../kernels/difference.ts'
import { unpackHalves } from '../../kernels/half.ts'
import type { HostArray } from '../../kernels/op.ts'
import { bytesOf, countElements, type TensorType } from '../../util/shape.ts'
import { switchValue } from '../../util/switches.ts'
import type { Place } from '../plan/plan.ts'
import type { Prepared } from '../plan/prepare.ts'
import { formatCall } from '../trace/format-call.ts'
import { callOf, type GraphValue } from '../trace/value.ts'

/** A program's buffers, as far as they are checked. */
interface CheckedBuffers {
  readonly scalarValues: Float32Array
  locate(gpu: Gpu, place: Place): { readonly buffer: GPUBuffer; readonly offset: number }
}

/** Records dispatches [from, to) of the program. */
type Encode = (encoder: GPUCommandEncoder, from: number, to: number) => void

const kernelNodes = ({ nodes, jointNodes, updateNodes, trace }: Prepared) =>
  [...nodes, ...jointNodes, ...updateNodes, ...trace.after].filter(({ op }) => !op.isView)

/**
 * `debug=5`: runs a program op by op on its own buffers, and holds each op's results against its reference.
 *
 * An op's inputs are read back before it and its results after it, so that an error is reported where it arises and not again further on.
 * Allowed is the op's tolerance, its absolute part times the largest magnitude of the result, as for the op's own `huge` cases.
 */
export class ValueCheck {
  readonly #gpu: Gpu
  readonly #prepared: Prepared
  readonly #buffers: CheckedBuffers
  #runs = 0

  private constructor(gpu: Gpu, prepared: Prepared, buffers: CheckedBuffers) {
    this.#gpu = gpu
    this.#prepared = prepared
    this.#buffers = buffers
  }

  /** A program's check where the switch asks for one; none with several ranks, which the console says. */
  static of(gpu: Gpu, prepared: Prepared, buffers: CheckedBuffers): ValueCheck | undefined {
    if (switchValue('debug') < 5) return undefined
    if (!prepared.trace.exchange?.exchangesGradients) return new ValueCheck(gpu, prepared, buffers)
    console.info('tabring values: not checked, because the program runs on several ranks')
    return undefined
  }

  /** Runs all dispatches; what is wrong goes to the console. */
  async run(encode: Encode): Promise<void> {
    const { plan, calls, trace } = this.#prepared
    this.#runs++
    let wrong = 0
    for (const [i, node] of kernelNodes(this.#prepared).entries()) {
      const { op, inputs, outputs } = node
      const before = await Promise.all(inputs.map((value) => this.#read(value)))
      const encoder = this.#gpu.device.createCommandEncoder({ label: op.name })
      const start = i === 0 ? 0 : plan.endOfNode[i - 1]
      if (plan.endOfNode[i] > start) encode(encoder, start, plan.endOfNode[i])
      this.#gpu.submit(encoder)
      const references = before.map((words, at) => toHostArray(words, inputs[at].type))
      const expected = op.reference(references, callOf(node), [...this.#buffers.scalarValues])
      const updated = op.updates ?? []
      const results = [...outputs, ...updated.map((at) => inputs[at])]
      const wanted = [...expected, ...updated.map((at) => references[at])]
      for (const [at, value] of results.entries()) {
        const got = await this.#read(value)
        const problem = problemOf(got, wanted[at], value, op.tolerance)
        if (!problem) continue
        wrong++
        const which = at < outputs.length ? `output ${at}` : `input ${updated[at - outputs.length]}`
        console.warn(
          `tabring values: run ${this.#runs}, op ${i + 1} of ${calls.length}, ${formatCall(node, trace)}, ${which}: ${problem}`,
        )
      }
    }
    console.info(
      `tabring values: run ${this.#runs}: ${calls.length} ops checked against their references, ${wrong} wrong results`,
    )
  }

  /** The value's 32-bit words. */
  async #read(value: GraphValue): Promise<Uint32Array<ArrayBuffer>> {
    const { buffer, offset } = this.#buffers.locate(this.#gpu, this.#prepared.plan.placeOf(value))
    const isEmpty = countElements(value.type.shape) === 0
    const bytes = isEmpty ? 0 : bytesOf(value.type)
    return new Uint32Array(await download(this.#gpu, buffer, offset, bytes))
  }
}

/** The numbers that words on the device are. */
function numbersOf(words: Uint32Array<ArrayBuffer>, { shape, dtype }: TensorType) {
  if (dtype === 'f16') return unpackHalves(words, countElements(shape))
  return new { f32: Float32Array, i32: Int32Array, u32: Uint32Array }[dtype](words.buffer)
}

const toHostArray = (words: Uint32Array<ArrayBuffer>, type: TensorType): HostArray => {
  const numbers = numbersOf(words, type)
  return numbers instanceof Float32Array ? Float64Array.from(numbers) : numbers.slice()
}

/** Returns the fault of a result: a value that is not finite, or a difference from the reference. */
export function problemOf(
  words: Uint32Array<ArrayBuffer>,
  expected: HostArray,
  { type }: Pick<GraphValue, 'type'>,
  tolerance: Parameters<typeof difference>[3],
): string | undefined {
  const got = numbersOf(words, type)
  const bad = got instanceof Float32Array ? got.findIndex((value) => !Number.isFinite(value)) : -1
  let scale = 1
  for (const value of expected) if (Number.isFinite(value)) scale = Math.max(scale, Math.abs(value))
  const problems = [
    ...(bad >= 0 ? [`[${bad}] is ${got[bad]}, the reference has ${expected[bad]}`] : []),
    difference(words, expected, type, tolerance, scale) ?? [],
  ].flat()
  return problems.length > 0 ? problems.join('; ') : undefined
}
