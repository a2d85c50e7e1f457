import type { Runtime } from '../graph/memory/runtime.ts'
import { prepareLowering, repeatsFor } from '../graph/tune/prepare-lowering.ts'
import { applicable } from '../kernels/choose.ts'
import { flopsOf, type MatmulForm, matmul } from '../kernels/matmul/matmul.ts'
import { kernels } from '../kernels/matmul/variants.ts'
import type { OpCall } from '../kernels/op.ts'
import { tensorType } from '../util/shape.ts'
import { median } from './median.ts'
import { checkProduct, leftShape, type ProductTask, rightShape } from './product.ts'

/** A product c[m, n] over k; `rowSums` adds those of a, as in the gradient of a layer with a bias. */
export type Problem = readonly [
  form: MatmulForm,
  m: number,
  k: number,
  n: number,
  rowSums?: boolean,
]

export interface VariantTime {
  readonly variant: string
  /** True if the fixed table takes it here. */
  readonly isPreferred: boolean
  /** Median of the runs, for one execution. */
  readonly ms: number
  /** Of each run, in order. */
  readonly runsMs: readonly number[]
  /** Fastest and slowest run. */
  readonly rangeMs: readonly [number, number]
  readonly gflops: number
  /** Until the first result: shader, pipeline, first run. */
  readonly firstMs: number
}

export interface MatmulTimingOptions {
  /** Only the fixed table's choice. */
  readonly preferredOnly?: boolean
  /** Rounds; each runs every variant once. Default 7. */
  readonly runs?: number
  /** A run lasts at least so long. Default 2 ms. */
  readonly minMs?: number
  readonly signal?: AbortSignal
  /** Called before each round: what is timed in turns with the variants. */
  readonly onRound?: () => void | Promise<void>
  /** Called with the name of each variant before it is compiled. */
  readonly onVariant?: (name: string) => void
}

/** `nt 64x784x256` */
export const formatProblem = ([form, m, k, n, rowSums]: Problem): string =>
  `${form} ${m}x${k}x${n}${rowSums ? ' + sums' : ''}`

export const taskOf = ([form, m, k, n]: Problem): ProductTask => ({ form, m, k, n })

function callOf(problem: Problem) {
  const [form, , , , rowSums = false] = problem
  const task = taskOf(problem)
  const inputs = [tensorType(leftShape(task)), tensorType(rightShape(task))]
  const attrs = { form, epilogue: [], rowSums }
  return { inputs, outputs: matmul.infer(inputs, attrs), attrs }
}

/** Both operands of a product, the same ones each time. */
export const operandsOf = ([, m, k, n]: Problem) => [filled(m * k, 1), filled(k * n, 2)] as const

/** Numbers of [-0.5, 0.5) that differ from place to place. */
const filled = (count: number, seed: number) =>
  Float32Array.from(
    { length: count },
    (_, i) => (Math.imul(i + seed, 0x9e3779b1) >>> 8) / 2 ** 24 - 0.5,
  )

/**
 * Times the variants of one product, interleaved: each round runs every variant once.
 *
 * Results are checked before anything is timed; the median of the rounds is reported. `naive` is left out where others can run.
 */
export async function timeMatmul(
  runtime: Runtime,
  problem: Problem,
  options: MatmulTimingOptions = {},
): Promise<VariantTime[]> {
  const { runs = 7, minMs = 2, preferredOnly = false, signal, onVariant, onRound } = options
  const { gpu, limits } = runtime
  const call = callOf(problem)
  const [a, b] = operandsOf(problem)
  const chosen = kernels.preferred(call, limits)
  const timed: {
    name: string
    prepared: Awaited<ReturnType<typeof prepareLowering>>
    times: number
    firstMs: number
    ms: number[]
  }[] = []
  try {
    for (const variant of applicable(matmul, call, limits)) {
      const { name } = variant
      if (name !== chosen && (preferredOnly || name === 'naive')) continue
      signal?.throwIfAborted()
      onVariant?.(name)
      const start = performance.now()
      const lowering = variant.lower(call)
      const prepared = await prepareLowering(runtime, lowering, call as OpCall, [a, b])
      const entry = { name, prepared, times: 1, firstMs: 0, ms: [] as number[] }
      timed.push(entry)
      await prepared.run(1)
      entry.firstMs = performance.now() - start
      checkProduct(name, taskOf(problem), a, b, new Float32Array(await prepared.read(0)))
      entry.times = await repeatsFor(prepared, minMs)
    }
    for (let round = 0; round < runs; round++) {
      await onRound?.()
      for (const { prepared, times, ms } of timed) {
        signal?.throwIfAborted()
        ms.push((await prepared.run(times)) / times)
      }
    }
    gpu.check()
  } finally {
    for (const { prepared } of timed) prepared.destroy()
  }
  return timed.map(({ name, firstMs, ms }) => {
    const sorted = ms.toSorted((x, y) => x - y)
    const middle = median(sorted)
    return {
      variant: name,
      isPreferred: name === chosen,
      ms: middle,
      runsMs: ms,
      rangeMs: [sorted[0], sorted[sorted.length - 1]],
      gflops: flopsOf(call) / middle / 1e6,
      firstMs,
    }
  })
}
