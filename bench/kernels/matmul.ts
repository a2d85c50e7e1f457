import { openGpu } from '../../src/gpu/device.ts'
import { PipelineCache } from '../../src/gpu/pipeline.ts'
import { applicable } from '../../src/kernels/choose.ts'
import { flopsOf, type MatmulForm, matmul, preferred } from '../../src/kernels/matmul/matmul.ts'
import type { OpCall } from '../../src/kernels/op.ts'
import { formatShape, tensorType } from '../../src/util/shape.ts'
import { prepareLowering, repeatsFor } from './prepare.ts'

// Times every matmul variant on this page's adapter. Runs in the page; bench/kernels/run.ts starts it from a terminal.

export interface MatmulBenchRow {
  readonly row: string
  readonly variant: string
  readonly isPreferred: boolean
  /** Median of the runs, for one execution. */
  readonly ms: number
  /** Fastest and slowest run. */
  readonly rangeMs: readonly [number, number]
  readonly gflops: number
  /** Until the first result: shader, pipeline, first run. */
  readonly firstMs: number
  readonly adapter: string
  readonly software: boolean
}

export interface MatmulBenchOptions {
  /** `mlp`: the matmuls of one MLP step at batch 64. `small`: its largest at batch 16 and 32. `cubes`: 256 to 1024 cubed. */
  readonly shapes: 'mlp' | 'small' | 'cubes'
  /** Only the fixed table's choice. */
  readonly preferredOnly?: boolean
  readonly runs?: number
}

type Problem = readonly [form: MatmulForm, m: number, k: number, n: number, rowSums?: boolean]

const problems: Record<MatmulBenchOptions['shapes'], readonly Problem[]> = {
  mlp: [
    ['nt', 64, 784, 256],
    ['nt', 64, 256, 10],
    ['tn', 10, 64, 256, true],
    ['nn', 64, 10, 256],
    ['tn', 256, 64, 784, true],
  ],
  small: [16, 32].flatMap((batch): Problem[] => [
    ['nt', batch, 784, 256],
    ['tn', 256, batch, 784, true],
  ]),
  cubes: [256, 512, 1024].flatMap((size): Problem[] =>
    (['nn', 'nt', 'tn'] as const).map((form) => [form, size, size, size]),
  ),
}

function callOf([form, m, k, n, rowSums = false]: Problem) {
  const inputs = [
    tensorType(form === 'tn' ? [k, m] : [m, k]),
    tensorType(form === 'nt' ? [n, k] : [k, n]),
  ]
  const attrs = { form, epilogue: [], rowSums }
  return { inputs, outputs: matmul.infer(inputs, attrs), attrs }
}

/** Numbers of [-0.5, 0.5) that differ from place to place. */
const filled = (count: number, seed: number) =>
  Float32Array.from(
    { length: count },
    (_, i) => (Math.imul(i + seed, 0x9e3779b1) >>> 8) / 2 ** 24 - 0.5,
  )

/** Compares some elements with f64 sums; throws at the first that is wrong. */
function check(
  [form, m, k, n]: Problem,
  name: string,
  a: Float32Array,
  b: Float32Array,
  c: Float32Array,
) {
  for (let sample = 0; sample < 500; sample++) {
    const row = (sample * 7919) % m
    const col = (sample * 104_729) % n
    let expected = 0
    for (let step = 0; step < k; step++) {
      expected +=
        a[form === 'tn' ? step * m + row : row * k + step] *
        b[form === 'nt' ? col * k + step : step * n + col]
    }
    const got = c[row * n + col]
    if (!(Math.abs(got - expected) <= 1e-3)) {
      throw new Error(
        `bench: ${name} of ${form} ${formatShape([m, k, n])}: element [${row}, ${col}] must be ${expected}, got ${got}. Run the op's tests.`,
      )
    }
  }
}

/**
 * Measures variants, interleaved: each round runs every variant once, at least 2 ms each.
 *
 * Results are checked before anything is timed; the median of the rounds is reported.
 */
export async function benchMatmul(options: MatmulBenchOptions): Promise<MatmulBenchRow[]> {
  const { runs = 7, preferredOnly = false } = options
  const gpu = await openGpu()
  const pipelines = new PipelineCache(gpu)
  const { facts } = gpu
  const limits = {
    maxInvocations: gpu.limits.maxComputeInvocationsPerWorkgroup,
    workgroupMemoryBytes: gpu.limits.maxComputeWorkgroupStorageSize,
    maxGroupsPerDimension: gpu.limits.maxComputeWorkgroupsPerDimension,
    isSoftware: facts.isSoftware,
  }
  const rows: MatmulBenchRow[] = []
  for (const problem of problems[options.shapes]) {
    const call = callOf(problem)
    const [form, m, k, n] = problem
    const a = filled(m * k, 1)
    const b = filled(k * n, 2)
    const chosen = preferred(call, limits)
    const timed = []
    for (const variant of applicable(matmul, call, limits)) {
      if (variant.name !== chosen && (preferredOnly || variant.name === 'naive')) continue
      const start = performance.now()
      const prepared = await prepareLowering(gpu, pipelines, variant.lower(call), call as OpCall, [
        a,
        b,
      ])
      await prepared.run(1)
      const firstMs = performance.now() - start
      check(problem, variant.name, a, b, new Float32Array(await prepared.read(0)))
      const times = await repeatsFor(prepared, 2)
      timed.push({ name: variant.name, prepared, times, firstMs, ms: [] as number[] })
    }
    for (let round = 0; round < runs; round++) {
      for (const entry of timed) {
        entry.ms.push((await entry.prepared.run(entry.times)) / entry.times)
      }
    }
    for (const { name, prepared, firstMs, ms } of timed) {
      prepared.destroy()
      ms.sort((x, y) => x - y)
      const median = ms[ms.length >> 1]
      rows.push({
        row: `${form} ${m}x${k}x${n}${call.attrs.rowSums ? ' + sums' : ''}`,
        variant: name,
        isPreferred: name === chosen,
        ms: median,
        rangeMs: [ms[0], ms[ms.length - 1]],
        gflops: flopsOf(call) / median / 1e6,
        firstMs,
        adapter: `${facts.vendor} ${facts.architecture} ${facts.description}`.trim(),
        software: facts.isSoftware,
      })
    }
  }
  gpu.close()
  return rows
}
