import { crossEntropy } from '../../src/graph/functions/linear.ts'
import type { Runtime } from '../../src/graph/memory/runtime.ts'
import { type InputTypes, prepare, type TracedFunction } from '../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { charRnn } from '../../src/nn/char-rnn.ts'
import { gpt } from '../../src/nn/gpt.ts'
import type { Module } from '../../src/nn/module.ts'
import { resnet18, resnet34, resnet50 } from '../../src/nn/resnet.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { tensorType } from '../../src/util/shape.ts'
import { models } from '../../tests/support/models.ts'
import { madeBy } from './made-by.ts'

/** A GPU with WebGPU's default limits. */
const target = {
  limits: {
    maxInvocations: 256,
    workgroupMemoryBytes: 16_384,
    maxGroupsPerDimension: 65_535,
    isSoftware: false,
  },
  variants: {},
} as unknown as Runtime

interface Example {
  readonly name: string
  readonly model: Module
  readonly x: InputTypes['x']
  /** Rows of the logits. */
  readonly rows: number
}

const [vocabSize, length, batch] = [65, 64, 8]
const images = (rows: number, size: number) => tensorType([rows, 3, size, size])
const tokens = tensorType([batch, length], 'i32')

const examples = (): Example[] => [
  { name: 'mlp, batch 64', model: models.mlp.make(), x: tensorType([64, 784]), rows: 64 },
  {
    name: 'cnn, batch 64',
    model: models.cnn.make(),
    x: tensorType([64, ...models.cnn.sampleShape]),
    rows: 64,
  },
  {
    name: 'gpt, 2 layers, width 64, 8 x 64 tokens',
    model: gpt({ vocabSize, blockSize: length, layers: 2, heads: 4, width: 64 }),
    x: tokens,
    rows: batch * length,
  },
  {
    name: 'gpt, 12 layers, width 64, 8 x 64 tokens',
    model: gpt({ vocabSize, blockSize: length, layers: 12, heads: 4, width: 64 }),
    x: tokens,
    rows: batch * length,
  },
  { name: 'charRnn, 8 x 64 tokens', model: charRnn(vocabSize), x: tokens, rows: batch * length },
  {
    name: 'resnet18, 8 images of 32 x 32',
    model: resnet18({ numClasses: 10 }),
    x: images(8, 32),
    rows: 8,
  },
  {
    name: 'resnet34, 8 images of 32 x 32',
    model: resnet34({ numClasses: 10 }),
    x: images(8, 32),
    rows: 8,
  },
  {
    name: 'resnet50, 2 images of 64 x 64',
    model: resnet50({ numClasses: 10 }),
    x: images(2, 64),
    rows: 2,
  },
]

const trainingStep =
  (model: Module, rows: number): TracedFunction =>
  ({ x, y }) => {
    const optimizer = new AdamW(model.parameters())
    const logits: Tensor = model.forward(x)
    const loss = crossEntropy(logits.reshape([rows, -1]), y)
    loss.backward()
    optimizer.step()
    return { loss }
  }

function row({ name, model, x, rows }: Example): (string | number)[] {
  const types = { x, y: tensorType([rows], 'i32') }
  const { plan } = prepare(target, trainingStep(model, rows), types)
  const { peakBytes, lowerBoundBytes } = plan
  return [
    name,
    peakBytes.toLocaleString('en'),
    lowerBoundBytes.toLocaleString('en'),
    (peakBytes / lowerBoundBytes).toFixed(3),
  ]
}

/** docs/how-it-works/memory.md: planned memory against the lower bound, by model. */
export const memoryPage = (): string =>
  [
    madeBy('scripts/docs/memory-page.ts'),
    '',
    '# Memory of a training step',
    '',
    'Memory planned for the intermediates of a training step (forward, backward, AdamW), without parameters and optimizer state. The lower bound is the largest total size of intermediates that are alive at the same time. The kernels are those for a GPU with the default WebGPU limits; a software adapter uses others, with slightly less scratch memory.',
    '',
    markdownTable(
      ['model', 'planned bytes', 'lower bound', 'ratio'],
      examples().map((example) => row(example)),
    ),
    '',
    '`program.memory` has the same numbers for a compiled program, and the bytes allocated on the device. `checkpoint()` lowers the peak: for 12 blocks of a GPT, by more than half.',
    '',
  ].join('\n')
