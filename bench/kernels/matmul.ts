import { openGpu } from '../../src/gpu/device.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import {
  formatProblem,
  type MatmulTimingOptions,
  type Problem,
  timeMatmul,
  type VariantTime,
} from '../../src/measure/matmul.ts'

// Times every matmul variant on this page's adapter. Runs in the page; bench/kernels/run.ts starts it from a terminal.

export interface MatmulBenchRow extends VariantTime {
  readonly row: string
  readonly adapter: string
  readonly software: boolean
}

export interface MatmulBenchOptions extends MatmulTimingOptions {
  /** `mlp`: the matmuls of one MLP step at batch 64. `small`: its largest at batch 16 and 32. `rows`: few rows, as when one sample is evaluated. `cubes`: 256 to 1024 cubed. `large`: 2048 and 4096 cubed, for a GPU. */
  readonly shapes: 'mlp' | 'small' | 'rows' | 'cubes' | 'large'
}

const cubesOf = (size: number): Problem[] =>
  (['nn', 'nt', 'tn'] as const).map((form) => [form, size, size, size])

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
  rows: [1, 2, 3].flatMap((batch): Problem[] => [
    ['nt', batch, 784, 256],
    ['nn', batch, 256, 1024],
  ]),
  cubes: [256, 512, 1024].flatMap(cubesOf),
  large: [2048, 4096].flatMap(cubesOf),
}

export async function benchMatmul(options: MatmulBenchOptions): Promise<MatmulBenchRow[]> {
  const runtime = new Runtime(await openGpu())
  const { vendor, architecture, description, isSoftware } = runtime.facts
  const rows: MatmulBenchRow[] = []
  for (const problem of problems[options.shapes]) {
    for (const time of await timeMatmul(runtime, problem, options)) {
      rows.push({
        ...time,
        row: formatProblem(problem),
        adapter: `${vendor} ${architecture} ${description}`.trim(),
        software: isSoftware,
      })
    }
  }
  runtime.gpu.close()
  return rows
}
