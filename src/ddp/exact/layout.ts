import { alignInPool, Pool } from '../../graph/memory/pool.ts'
import { type AnyRuntime, Runtime } from '../../graph/memory/runtime.ts'
import { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import { blocksOf } from '../../kernels/encode/encode.ts'
import type { ExactOptimizer } from '../../optim/exact/exact-optimizer.ts'

/** Where a parameter's sums, marks and exponents are. */
export interface Place {
  readonly parameter: ExactOptimizer['parameters'][number]
  readonly start: number
  readonly marksStart: number
  readonly exponentsStart: number
  /** First of its blocks among those of all parameters. */
  readonly block: number
  readonly total: ModuleBuffer
  readonly marks: ModuleBuffer
  readonly exponents: ModuleBuffer
  /** Whether it gets a gradient. */
  isUsed: boolean
}

export interface Layout {
  readonly sums: Pool
  readonly exponents: Pool
  readonly places: Place[]
}

/** One pool for what is read back in a step, one for what is written. */
export function layOut({ parameters }: ExactOptimizer, runtime: AnyRuntime): Layout {
  const memory = runtime instanceof Runtime ? runtime.gpu : 'host'
  let sumsLength = 0
  let exponentsLength = 0
  let block = 0
  const take = (count: number) => {
    const start = sumsLength
    sumsLength += alignInPool(count)
    return start
  }
  const zeros = (count: number) => new ModuleBuffer([count], new Int32Array(count))
  const places = parameters.map((parameter) => {
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
  const sums = new Pool('sums of whole numbers', sumsLength).allocate(memory)
  const exponents = new Pool('exponents', exponentsLength).allocate(memory)
  for (const { total, marks, exponents: own, start, marksStart, exponentsStart } of places) {
    total.moveTo({ pool: sums, start })
    marks.moveTo({ pool: sums, start: marksStart })
    own.moveTo({ pool: exponents, start: exponentsStart })
  }
  return { sums, exponents, places }
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
