import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import { classifiers, endAll, parametersOf, train } from '../../support/classification.ts'
import { flipBit } from '../../support/flip-bit.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'
import { serveDigits } from '../../support/served-digits.ts'

beforeEach(() => serveDigits(8, () => 100))
afterEach(async () => {
  vi.restoreAllMocks()
  ;(await testRuntime()).gpu.check()
})

/** Two ranks, and what they await after each step. */
async function verified(everySteps: number) {
  const runtime = await testRuntime()
  const ranks = await classifiers(2, runtime)
  await expect(ranks[0].ddp.verifySync({ everySteps: 0, runtime })).rejects.toThrow('everySteps')
  const verify = await Promise.all(ranks.map(({ ddp }) => ddp.verifySync({ everySteps, runtime })))
  let step = 0
  return {
    ranks,
    /** Trains to step `to` and verifies each step; `after` comes between. */
    async trainTo(to: number, after: (step: number) => void = () => undefined) {
      while (step < to) {
        await train(ranks, 1, undefined, step++)
        after(step)
        await Promise.all(verify.map((next) => next()))
      }
    },
    /** Flips a bit of what rank 1 has of a parameter that rank 0 updates. */
    flip: () => flipBit(runtime.gpu, ranks[1].optimizer.buckets[1].parameterPool.buffer),
  }
}

test('200 steps are verified one by one; one flipped bit is found at once', async () => {
  const { ranks, trainTo, flip } = await verified(1)
  await trainTo(200)
  await expect(trainTo(201, flip)).rejects.toThrow(/after step 201 bucket 1 .*on rank 1/)
  endAll(ranks)
})

test('a rank that keeps flipping a bit is found within `everySteps` steps; after a single flip the next step makes ranks equal', async () => {
  const { ranks, trainTo, flip } = await verified(10)
  await trainTo(20, (step) => step === 13 && flip())
  const [first, second] = await parametersOf(ranks)
  expect(second).toEqual(first)
  await expect(trainTo(30, (step) => step >= 23 && flip())).rejects.toThrow(
    /after step 30 bucket 1 .*on rank 1/,
  )
  endAll(ranks)
})

test('five groups that train one after the other leave no buffer', async () => {
  const runtime = await testRuntime()
  const live = new Set<GPUBuffer>()
  const { createBuffer } = GPUDevice.prototype
  vi.spyOn(GPUDevice.prototype, 'createBuffer').mockImplementation(function (
    this: GPUDevice,
    ...given
  ) {
    const buffer = createBuffer.apply(this, given)
    const destroy = buffer.destroy.bind(buffer)
    buffer.destroy = () => {
      live.delete(buffer)
      destroy()
    }
    live.add(buffer)
    return buffer
  })
  const left: number[] = []
  let made = 0
  for (let cycle = 0; cycle < 5; cycle++) {
    const groups = await ringOf(2)
    await Promise.all(
      groups.map(async (group) => {
        const config = parseTrainConfig({ data: 'images', steps: 2, batchSize: 4, hashEvery: 1 })
        const baseUrl = 'https://data.example/'
        const trainer = new Trainer({
          task,
          runtime,
          group,
          config,
          baseUrl,
          onEvent: () => undefined,
        })
        await trainer.run()
        made = Math.max(made, live.size)
        trainer.destroy()
        await group.leave()
      }),
    )
    for (const group of groups) expect(group.stats().inFlight.launched).toBe(0)
    left.push(live.size)
  }
  expect(made).toBeGreaterThan(20)
  // What the device keeps for all programs is made once.
  expect(left).toEqual(left.map(() => left[0]))
})
