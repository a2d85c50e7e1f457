import { applicable } from '../../src/kernels/choose.ts'
import { ops } from '../../src/kernels/index.ts'
import type { KernelLimits, Op } from '../../src/kernels/op.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { madeBy } from './made-by.ts'
import { pytorchValues, tracedFiles, withoutCounterpart } from './pytorch-values.ts'

/** WebGPU's defaults, which every adapter has, and subgroups as most have them. */
const limits: KernelLimits = {
  maxInvocations: 256,
  workgroupMemoryBytes: 16_384,
  maxGroupsPerDimension: 65_535,
  subgroupSizes: { smallest: 32, largest: 32 },
}

/** Pairs of variant and case that can run. */
const pairsOf = (op: Op): number =>
  op.cases
    .map(({ inputs, attrs }) => ({ inputs, outputs: op.infer(inputs, attrs), attrs }))
    .reduce((sum, call) => sum + applicable(op, call, limits).length, 0)

/** Ops whose result is always float16, or float16 depending on their own attrs. */
const halfAlways: ReadonlySet<string> = new Set(['map', 'halfCopies'])

const row = (op: Op): string[] => {
  const { name, variants, cases, gradient, takesHalf, givesHalf, isView } = op
  return [
    `\`${name}\``,
    isView ? 'a view, no kernel' : `${pairsOf(op)}`,
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
  return [
    madeBy('src/kernels/index.ts'),
    '',
    '# Ops',
    '',
    'All ops of `src/kernels`. Layers, losses and most functions are built from these; `map` covers all elementwise functions.',
    '',
    markdownTable(
      ['op', 'forward', 'gradient', '16-bit', 'reference checked', 'PyTorch', 'variants'],
      ops.map(row),
    ),
    '',
    '- **forward**: number of (variant, case) pairs that `tests/all/gpu/every-op.spec.ts` checks against the reference, with the default WebGPU limits. It checks that values match, every element is written, nothing outside is written, and two runs give equal bits.',
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
