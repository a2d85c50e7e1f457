import { type AdapterFacts, Gpu } from '../../src/gpu/device.ts'
import { WasmDevice } from '../../src/gpu/wasm/device.ts'
import { WasmHeap } from '../../src/gpu/wasm/heap.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import { applicable } from '../../src/kernels/choose.ts'
import { ops } from '../../src/kernels/index.ts'
import type { KernelLimits, Op } from '../../src/kernels/op.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { compileKernel } from '../../src/wasm/compile-kernel.ts'
import { madeBy } from './made-by.ts'
import { pytorchValues, tracedFiles, withoutCounterpart } from './pytorch-values.ts'

/** WebGPU's defaults, which every adapter has, and subgroups as most have them. */
const limits: KernelLimits = {
  maxInvocations: 256,
  workgroupMemoryBytes: 16_384,
  maxGroupsPerDimension: 65_535,
  subgroupSizes: { smallest: 32, largest: 32 },
}

/** Those of the device cpu. */
function limitsOfCpu(): KernelLimits {
  const device = new WasmDevice(new WasmHeap(), compileKernel) as unknown as GPUDevice
  return new Runtime(new Gpu(device, {} as AdapterFacts, { type: 'cpu', index: 0 })).limits
}

/** Pairs of variant and case that can run. */
const pairsOf = (op: Op, limits: KernelLimits): number =>
  op.cases
    .map(({ inputs, attrs }) => ({ inputs, outputs: op.infer(inputs, attrs), attrs }))
    .reduce((sum, call) => sum + applicable(op, call, limits).length, 0)

/** Ops whose result is always float16, or float16 depending on their own attrs. */
const halfAlways: ReadonlySet<string> = new Set(['map', 'halfCopies'])

/** Element types of what it reads; for one without inputs, of what it makes. */
function typesOf({ cases, infer }: Op): string {
  const types = cases.flatMap(({ inputs, attrs }) =>
    inputs.length > 0 ? inputs : infer(inputs, attrs),
  )
  const found = new Set(types.map(({ dtype }) => dtype))
  return (['f32', 'i32', 'u32', 'f16'] as const).filter((dtype) => found.has(dtype)).join(' ')
}

const row = (op: Op, cpu: KernelLimits): string[] => {
  const { name, variants, cases, gradient, takesHalf, givesHalf, isView } = op
  return [
    `\`${name}\``,
    typesOf(op),
    ...[limits, cpu].map((own) => (isView ? 'a view, no kernel' : `${pairsOf(op, own)}`)),
    gradient ? 'yes' : '',
    [takesHalf ? 'reads' : '', givesHalf || halfAlways.has(name) ? 'stores' : '']
      .filter(Boolean)
      .join(', '),
    `${cases.length} cases`,
    name in pytorchValues ? `${pytorchValues[name][0]}.json` : 'no counterpart',
    variants.map((variant) => `\`${variant.name}\``).join(' '),
  ]
}

const filesOf = (names: Iterable<string>) => [...names].map((name) => `${name}.json`).join(', ')

/** Files in which only the list below ties a case to its op. */
const declaredFiles = new Set(
  Object.values(pytorchValues)
    .map(([file]) => file)
    .filter((file) => !tracedFiles.some((traced) => traced === file))
    .sort(),
)

/** docs/reference/ops.md: the features and tests of each op in the registry. */
export function opsPage(): string {
  const cpu = limitsOfCpu()
  return [
    madeBy('src/kernels/index.ts'),
    '',
    '# Ops',
    '',
    'All ops of `src/kernels`. Layers, losses and most functions are built from these; `map` covers all elementwise functions.',
    '',
    markdownTable(
      [
        ...['op', 'types', 'webgpu', 'cpu', 'gradient', '16-bit'],
        ...['reference checked', 'PyTorch', 'variants'],
      ],
      ops.map((op) => row(op, cpu)),
    ),
    '',
    '- **types**: element types of the inputs in the cases. Ops that only move elements take all types. A function refuses a tensor of a type that does not fit when the program is compiled. A boolean tensor is i32. There is no bfloat16 on any device: `compile` refuses it, and files and communication hooks convert it.',
    '- **webgpu**, **cpu**: number of (variant, case) pairs that `tests/all/gpu/every-op.spec.ts` checks against the reference on that device, for WebGPU with the default limits. It checks that values match, every element is written, nothing outside is written, and two runs give equal bits. The device `cpu` compiles the same shaders to WebAssembly: it lacks the variants with subgroups alone. A shader that it could not compile would be an error of `compile` that names the kernel.',
    '- **gradient**: the op has a gradient rule, which `tests/all/gpu/gradients.spec.ts` checks against central differences of the reference (for `detach`: that the gradient is zero). The other ops are updates, gradients themselves, or not differentiable.',
    '- **16-bit**: the op reads tensors stored as float16 (every other op gets them as float32), or can store its first result as float16.',
    "- **reference checked**: number of cases in the op's folder; all run against the op's float64 reference.",
    `- **PyTorch**: a file of \`tests/golden\` with PyTorch results that involve the op, including gradients, optimizers and whole training runs. For ${filesOf(tracedFiles)}, a test checks that the op occurs in the program of one case. For ${filesOf(declaredFiles)}, \`scripts/docs/pytorch-values.ts\` declares it by hand, and the test only checks that the case exists. The tolerance is 8 times PyTorch's own difference between float32 and float64, which counts as one rounding of the largest element at least; for edge cases and extreme magnitudes, a few roundings of each element (\`tests/support/golden-call.ts\`). PyTorch 1.13 has no Lion, GPT or ResNet, so the scripts implement them. Ops without a counterpart in PyTorch: ${Object.entries(
      withoutCounterpart,
    )
      .map(([name, reason]) => `\`${name}\` (${reason})`)
      .join(', ')}.`,
    '',
  ].join('\n')
}
