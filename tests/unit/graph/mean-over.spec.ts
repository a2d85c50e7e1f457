import { expect, test } from 'vitest'
import { type Tensor, tensorType } from '../../../src/entries/index.ts'
import { sampleCount } from '../../../src/entries/metrics.ts'
import { crossEntropy, mseLoss, nllLoss } from '../../../src/entries/nn/functional.ts'
import { SGD } from '../../../src/entries/optim.ts'
import { cast } from '../../../src/graph/functions/shape.ts'
import type { HostData } from '../../../src/graph/memory/host-values.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { type InputTypes, prepare, type TracedFunction } from '../../../src/graph/plan/prepare.ts'
import { newTally } from '../../../src/graph/plan/weighing.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { gradientWeight } from '../../../src/graph/trace/trace.ts'

const runtime = new ReferenceRuntime()
const rows = 4
const classes = 3
const types: InputTypes = {
  x: tensorType([rows, 2]),
  y: tensorType([rows], 'i32'),
  words: tensorType([rows, 5], 'i32'),
  mask: tensorType([rows]),
}
const inputs = new Map<string, HostData>([
  ['x', new Float32Array(2 * rows)],
  ['y', Int32Array.of(0, 1, -100, 2)],
  ['words', Int32Array.from({ length: 5 * rows }, (_, i) => (i % 5 < 2 ? -100 : i % classes))],
  ['mask', Float32Array.of(1, 0, 0, 1)],
])

type Given = Record<'x' | 'y' | 'words' | 'mask', Tensor>

/** What a run counts, by the weight that its backward begins with; `max`: what counts in a full batch. */
function counted(lossOf: (given: Given, logits: Tensor) => Tensor, scalars = {}) {
  const weight = new Parameter([2, classes], new Float32Array(2 * classes))
  const optimizer = new SGD([weight], { lr: 0.1 })
  const step: TracedFunction = (given) => {
    const loss = lossOf(given as Given, given.x.matmul(weight))
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
  const { trace } = prepare(runtime, step, types, {
    useNaiveKernels: true,
    accumulation: { part: 'add', weight: 1, tally: newTally() },
  })
  const { weighing } = trace
  trace.scalars.begin(scalars)
  weighing!.begin(inputs, false)
  return {
    max: weighing!.samples,
    count: trace.scalars.valueOf(gradientWeight) * (weighing!.samples ?? 0),
  }
}

const count = { count: 3 }
const steps: [
  string,
  { max: number; count: number },
  Parameters<typeof counted>[0],
  typeof count?,
][] = [
  ['class numbers', { max: 4, count: 3 }, ({ y }, out) => crossEntropy(out, y)],
  [
    'class numbers of counted samples',
    { max: 4, count: 2 },
    ({ y }, out) => crossEntropy(out, y, { count: sampleCount() }),
    count,
  ],
  [
    'another number to ignore',
    { max: 4, count: 3 },
    ({ y }, out) => nllLoss(out.logSoftmax(1), y, { ignoreIndex: 2 }),
  ],
  [
    'part of an input, under another shape',
    { max: 16, count: 12 },
    ({ words }, out) => {
      const all = out.reshape([rows, 1, classes]).expand([rows, 4, classes])
      return crossEntropy(all.reshape([-1, classes]), words.slice(1, 1, 5).reshape([-1]))
    },
  ],
  [
    'what is computed of inputs',
    { max: 4, count: 2 },
    ({ y, mask }, out) => crossEntropy(out, cast(cast(y, 'f32').where(mask.gt(0.5), -100), 'i32')),
  ],
  [
    'labels that the model makes, by samples',
    { max: 4, count: 3 },
    (_, out) => crossEntropy(out, out.argmax(1), { count: sampleCount() }),
    count,
  ],
  [
    'counted elements, by samples',
    { max: 4, count: 3 },
    ({ x }, out) => mseLoss(out, x.sum(1, true).expand([rows, 3]), { count: sampleCount() }),
    count,
  ],
  [
    'two losses over the same',
    { max: 4, count: 3 },
    ({ y }, out) => crossEntropy(out, y).add(crossEntropy(out.mul(2), y)),
  ],
  [
    'two losses over other class numbers of the same samples, by samples',
    { max: 4, count: 3 },
    ({ y }, out) => {
      const options = { count: sampleCount() }
      return crossEntropy(out, y, options).add(crossEntropy(out, y, { ...options, ignoreIndex: 1 }))
    },
    count,
  ],
  [
    'weights of classes, by samples',
    { max: 4, count: 3 },
    ({ y, mask }, out) =>
      crossEntropy(out, y, { count: sampleCount(), weight: mask.slice(0, 0, 3) }),
    count,
  ],
]

test.each(steps)('%s', (_, expected, loss, scalars) => {
  const { max, count } = counted(loss, scalars)
  expect({ max, count: Math.round(1e6 * count) / 1e6 }).toEqual(expected)
})

test.each<[string, Parameters<typeof counted>[0]]>([
  ['a plain mean', (_, out) => out.square().mean()],
  ['a sum', ({ y }, out) => crossEntropy(out, y, { reduction: 'sum' })],
  ['labels that the model makes', (_, out) => crossEntropy(out, out.argmax(1))],
  [
    'losses over other class numbers',
    ({ y }, out) => crossEntropy(out, y).add(crossEntropy(out, y, { ignoreIndex: 1 })),
  ],
])('%s: nothing is counted, as in PyTorch', (_, loss) => {
  expect(counted(loss).max).toBeUndefined()
})
