import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task } from '../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../demos/experiments.ts'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { detectAnomaly } from '../../src/graph/compile/detect-anomaly.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Linear } from '../../src/nn/layers.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { Trainer } from '../../src/trainer/loop/trainer.ts'
import { tensorType } from '../../src/util/shape.ts'
import { ringOf } from '../support/process-ring.ts'
import { testRuntime } from '../support/run-op.ts'
import { serveDigits } from '../support/served-digits.ts'

// A loss that is no number because of one rank's samples: the others learn which op it was, and where.

const count = 48

/** Serves folders of images that are all of one brightness: `/bytes-255/` is white. */
beforeEach(() => serveDigits(count, ({ pathname }) => Number(/bytes-(\d+)/.exec(pathname)?.[1])))
afterEach(async () => {
  vi.restoreAllMocks()
  ;(await testRuntime()).gpu.check()
})

/** How each rank's run ended, and after which step, with such images on each. */
async function endsOf(brightness: readonly number[], lr: number) {
  const runtime = await testRuntime()
  const config = parseTrainConfig({
    data: 'images',
    optimizer: 'sgd',
    lr,
    steps: 4,
    batchSize: 12,
    bucketCapMb: 0.3,
  })
  return Promise.all(
    (await ringOf(brightness.length)).map(async (group, rank) => {
      const received: number[] = []
      const trainer = new Trainer({
        task,
        runtime,
        group,
        config,
        baseUrl: `https://data.example/bytes-${brightness[rank]}/`,
        onEvent: (event) => event.event === 'step' && received.push(event.step),
      })
      const reason = await trainer.run().then(
        () => 'it went on to the end',
        (error: unknown) => error,
      )
      trainer.destroy()
      group.destroy()
      return { reason, received }
    }),
  )
}

test('steps are left out for one rank, and the third in a row ends the run with its op in the error of every rank', async () => {
  // After one step at this rate, white images overflow in the second layer, black ones do not: only biases reach it.
  const ends = await endsOf([0, 0, 255], 2e19)
  expect(ends).toHaveLength(3)
  for (const { reason, received } of ends) {
    expect(reason).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(
        /^step 4: rank 2: \w+\(f32\[4, 256\], [^)]*\): the result is not finite, .*learning rate.* The gradients of rank 2 were not finite in 3 steps in a row\.$/,
      ),
    })
    expect(received).toEqual([1])
  }
})

test('one rank alone may call detectAnomaly between steps: it sends nothing and changes nothing', async () => {
  const runtime = await testRuntime()
  const types = { x: tensorType([2, 4]), y: tensorType([2], 'i32') }
  const groups = await ringOf(3)
  const members = await Promise.all(
    groups.map(async (processGroup) => {
      const model = new DistributedDataParallel(new Linear(4, 3), { processGroup })
      const optimizer = new SGD(model.parameters(), { lr: 0.1 })
      const step = ({ x, y }: Record<string, Tensor>) => {
        const loss = crossEntropy(model.forward(x), y)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      }
      return { model, step, program: await compile(step, types, { runtime }) }
    }),
  )
  const y = Int32Array.of(0, 2)
  const good = { x: new Float32Array(8).fill(0.5), y }
  const bad = { x: new Float32Array(8).fill(Number.NaN), y }
  const runAll = () => Promise.all(members.map(({ program }) => program.run(good)))
  const [first] = await runAll()
  const sent = groups.map((group) => group.stats().payloadBytesSent)
  const before = await members[1].model.parameters()[0].read()
  await expect(detectAnomaly(runtime, members[1].step, types, bad)).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(
      /expected finite arguments, but input "x" has values that are not finite/,
    ),
  })
  await detectAnomaly(runtime, members[1].step, types, good)
  expect(groups.map((group) => group.stats().payloadBytesSent)).toEqual(sent)
  expect(await members[1].model.parameters()[0].read()).toEqual(before)
  const [second] = await runAll()
  expect(second.loss[0]).toBeLessThan(first.loss[0])
  for (const [rank, { program }] of members.entries()) {
    groups[rank].destroy()
    program.destroy()
  }
})
