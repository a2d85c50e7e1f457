import { afterEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import type { CollectiveSpan } from '../../../src/peer/group/group.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import { StepTimeline } from '../../../src/trainer/watch/step-timeline.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ringOf } from '../../support/process-ring.ts'
import { serveDigits } from '../../support/served-digits.ts'

// One group, several models or one that is rebuilt: every collective of the epoch has another key.

afterEach(() => vi.restoreAllMocks())

/** Groups that report here, by rank. */
async function watchedRing(size: number) {
  const spans = Array.from({ length: size }, (): CollectiveSpan[] => [])
  const groups = await ringOf(size, (rank, span) => spans[rank].push(span))
  return { groups, spans }
}

const keyOf = ({ operation, sequence, bucket }: CollectiveSpan) =>
  `${operation} ${sequence} ${bucket}`

/** The steps of whose first bucket gradients were summed. */
const stepsOf = (spans: readonly CollectiveSpan[]) =>
  spans.flatMap(({ operation, sequence, bucket }) =>
    operation === 'reduceScatter' && bucket === 0 ? [sequence] : [],
  )

function expectKeysOnce(spans: readonly CollectiveSpan[]): void {
  const keys = spans.map(keyOf)
  expect(new Set(keys).size).toBe(keys.length)
}

test('four ranks that go back for a loss that is no number use no key twice, and name the op', async () => {
  serveDigits(8, () => 255)
  const { groups, spans } = await watchedRing(4)
  const config = parseTrainConfig({
    data: 'images',
    optimizer: 'sgd',
    lr: 2e19,
    steps: 4,
    batchSize: 4,
  })
  const reasons = await Promise.all(
    groups.map(async (group) => {
      const trainer = new Trainer({
        task,
        runtime: new ReferenceRuntime(),
        group,
        config,
        baseUrl: 'https://data.example/',
        onEvent: () => undefined,
      })
      const reason: unknown = await trainer.run().catch((error: unknown) => error)
      trainer.destroy()
      group.destroy()
      return reason
    }),
  )
  for (const reason of reasons) {
    expect(reason).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(
        /^step 2: ranks 0, 1, 2 and 3: \w+\(f32\[1, \d+\], .*\): the result is not finite, /,
      ),
    })
  }
  for (const own of spans) {
    // Two steps up to the loss, and the first one again.
    expect(stepsOf(own)).toEqual([1, 2, 3])
    // The links are measured once, each size twice, and not again for the model that is rebuilt.
    const probes = own.filter(({ operation }) => operation === 'allReduce')
    const sizes = probes.map(({ payloadBytes }) => payloadBytes)
    expect(sizes.filter((bytes) => bytes === sizes[0])).toHaveLength(2)
    expectKeysOnce(own)
  }
})

class Scale extends Module {
  readonly weight = new Parameter([2], Float32Array.of(0.5, -0.25))
  forward(x: Tensor): Tensor {
    return x.mul(this.weight)
  }
}

test('two models on one group share the numbers of steps, and the timeline finds a step of either', async () => {
  const { groups, spans } = await watchedRing(2)
  const programs = await Promise.all(
    groups.map((processGroup) =>
      Promise.all(
        [0, 1].map(() => {
          const ddp = new DistributedDataParallel(new Scale(), { processGroup })
          const optimizer = new SGD(ddp.parameters(), { lr: 0.1 })
          const step = ({ x }: Record<string, Tensor>) => {
            const loss = ddp.forward(x).square().mean()
            optimizer.zeroGrad()
            loss.backward()
            optimizer.step()
            return { loss }
          }
          return compile(step, { x: tensorType([2]) }, { runtime: new ReferenceRuntime() })
        }),
      ),
    ),
  )
  const timeline = new StepTimeline()
  const run = async (model: number) => {
    const before = spans[0].length
    await Promise.all(programs.map((own) => own[model].run({ x: Float32Array.of(1, 2) })))
    for (const span of spans[0].slice(before)) timeline.onSpan(span)
  }
  for (const model of [0, 0, 1, 0]) await run(model)
  for (let step = 4; step <= 6; step++) {
    timeline.begin(programs[0][1], step, 10)
    await run(1)
  }
  for (const own of spans) {
    expect(stepsOf(own)).toEqual([1, 2, 3, 4, 5, 6, 7])
    expectKeysOnce(own)
  }
  const watched = spans[0].filter(({ sequence }) => sequence === 6)
  const launched = timeline.entries.filter(({ name }) => name.endsWith(': launched'))
  expect(watched.length).toBeGreaterThan(1)
  expect(launched.map(({ atMs }) => atMs)).toEqual(watched.map(({ launchedMs }) => launchedMs))
  for (const group of groups) group.destroy()
})
