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

/** Ops that say by attrs of their own, or always, that their result is float16. */
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

/** Files whose cases nothing but the list holds to their ops. */
const declaredFiles = new Set(
  Object.values(pytorchValues)
    .map(([file]) => file)
    .filter((file) => !tracedFiles.some((traced) => traced === file))
    .sort(),
)

/** docs/reference/ops.md: what each op of the registry has, and what of it is tested. */
export function opsPage(): string {
  return [
    madeBy('src/kernels/index.ts'),
    '',
    '# Ops',
    '',
    'Every op of `src/kernels`. Layers, losses and most functions are made of these; `map` alone is every elementwise function.',
    '',
    markdownTable(
      ['op', 'forward', 'gradient', '16-bit', 'reference checked', 'PyTorch', 'variants'],
      ops.map(row),
    ),
    '',
    '- **forward**: pairs of variant and case that `tests/gpu/every-op.spec.ts` holds against the reference, with the default limits of WebGPU: values, nothing unwritten, nothing written outside, equal bits in two runs.',
    '- **gradient**: it has a rule, which `tests/all/gpu/gradients.spec.ts` holds against central differences of the reference (of `detach`: its purpose is to have none). The others are updates, gradients themselves, or what nothing flows through.',
    '- **16-bit**: it reads tensors stored as float16, which every other op gets as float32; it can store its first result so.',
    "- **reference checked**: cases in the op's folder, all of them run against the op's own float64 reference.",
    `- **PyTorch**: a file of \`tests/golden\` with values of PyTorch's that the op takes part in; gradients, optimizers and whole trainings among them. Of ${filesOf(tracedFiles)} a test takes one case for each op named here and finds the op in its program; for ${filesOf(declaredFiles)} that the op takes part is declared by hand (\`scripts/docs/pytorch-values.ts\`), and tested is only that the case exists. Results are held to five times PyTorch's own distance between float32 and float64; cases of edges and magnitudes to a few roundings of each element (\`tests/support/golden-call.ts\`). Lion, and the structure of GPT and ResNet, are written out in the scripts, since PyTorch 1.13 has none of them. Without a counterpart there: ${Object.entries(
      withoutCounterpart,
    )
      .map(([name, reason]) => `\`${name}\` (${reason})`)
      .join(', ')}.`,
    '',
  ].join('\n')
}
