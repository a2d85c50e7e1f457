import { stepScalar } from '../../graph/functions/linear.ts'
import type { Memory } from '../../graph/memory/memory-device.ts'
import { alignInPool, Pool } from '../../graph/memory/pool.ts'
import { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { blocksOf, encode } from '../../kernels/encode/encode.ts'

/** Where a parameter's sums, marks and exponents are. */
export interface Place {
  readonly parameter: Parameter
  readonly start: number
  readonly marksStart: number
  readonly exponentsStart: number
  /** First of its blocks among those of all parameters. */
  readonly block: number
  readonly total: ModuleBuffer
  readonly marks: ModuleBuffer
  readonly exponents: ModuleBuffer
  /** True if it gets a gradient. */
  isUsed: boolean
}

export interface Layout {
  readonly sums: Pool
  readonly exponents: Pool
  readonly places: readonly Place[]
  /** Makes the pools; before the program that adds to them. */
  allocate(memory: Memory): void
  destroy(): void
}

/** One pool for what is read back in a step, one for what is written. */
export function layOut(parameters: readonly Parameter[]): Layout {
  let sumsLength = 0
  let exponentsLength = 0
  let block = 0
  const take = (count: number) => {
    const start = sumsLength
    sumsLength += alignInPool(count)
    return start
  }
  const zeros = (count: number) => new ModuleBuffer([count], new Int32Array(count))
  const places = parameters.map((parameter): Place => {
    const { count } = parameter
    const blocks = blocksOf(count)
    const place = {
      parameter,
      start: take(count),
      marksStart: take(blocks),
      exponentsStart: exponentsLength,
      block,
      total: zeros(count),
      marks: zeros(blocks),
      exponents: zeros(blocks),
      isUsed: false,
    }
    exponentsLength += alignInPool(blocks)
    block += blocks
    return place
  })
  const sums = new Pool('sums of whole numbers', sumsLength)
  const exponents = new Pool('exponents', exponentsLength)
  return {
    sums,
    exponents,
    places,
    allocate(memory) {
      sums.allocate(memory)
      exponents.allocate(memory)
      for (const { total, marks, exponents: own, start, marksStart, exponentsStart } of places) {
        total.moveTo({ pool: sums, start })
        marks.moveTo({ pool: sums, start: marksStart })
        own.moveTo({ pool: exponents, start: exponentsStart })
      }
    },
    destroy() {
      sums.destroy()
      exponents.destroy()
    },
  }
}

/** Adds the parameters' gradients to their sums, in the function being compiled; the first replay of a step begins these. */
export function addGradients({ places }: Layout): void {
  const trace = activeTrace('encode')
  const first = stepScalar('isFirstReplay')
  for (const place of places) {
    const { parameter, total, marks, exponents } = place
    const gradient = trace.gradients.get(parameter)
    place.isUsed = gradient !== undefined
    if (gradient)
      trace.emit(encode, [total.value, marks.value, gradient, exponents.value], { first })
  }
}

/** Of the blocks of one parameter. */
export const exponentsOf = ({ block, exponents: { count } }: Place, all: Int32Array<ArrayBuffer>) =>
  all.subarray(block, block + count)

/** Of all parameters. */
export const blockCount = (places: readonly Place[]): number =>
  places.reduce((sum, { marks }) => sum + marks.count, 0)

/** The marks of all blocks, in order. */
export function marksIn(sums: Int32Array, places: readonly Place[]): Int32Array {
  const all = new Int32Array(blockCount(places))
  for (const { block, marksStart, marks } of places)
    all.set(sums.subarray(marksStart, marksStart + marks.count), block)
  return all
}
