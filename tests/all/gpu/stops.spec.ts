import { afterEach, expect, test } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { flipBit } from '../../support/flip-bit.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

/** How a rank's run ended, and the last step that it reported. */
interface End {
  reason: unknown
  lastStep: number
}

/** The built-in experiment on three ranks of this page; `onStep` is called in each rank, between a step and the next thing it does. */
async function endsOf(
  settings: TrainConfigInput,
  onStep: (rank: number, step: number, trainer: Trainer) => void = () => undefined,
): Promise<End[]> {
  const runtime = await testRuntime()
  const config = parseTrainConfig({ steps: 4, batchSize: 12, bucketCapMb: 0.01, ...settings })
  return Promise.all(
    (await ringOf(3)).map(async (group, rank) => {
      let lastStep = 0
      const trainer = new Trainer({
        task,
        runtime,
        group,
        config,
        baseUrl: location.href,
        onEvent: (event) => {
          if (event.event !== 'step') return
          lastStep = event.step
          onStep(rank, event.step, trainer)
        },
      })
      const reason = await trainer.run().then(
        () => 'it went on to the end',
        (error: unknown) => error,
      )
      trainer.destroy()
      group.destroy()
      return { reason, lastStep }
    }),
  )
}

test('a bit that flips in one rank after a step ends the run there, on every rank, naming step, bucket and rank', async () => {
  const { gpu } = await testRuntime()
  const ends = await endsOf({ hashEvery: 1 }, (rank, step, { program }) => {
    if (rank !== 1 || step !== 2) return
    const { bucket } = program!.prepared.updates[1].update
    expect(bucket.index).toBe(1)
    flipBit(gpu, bucket.parameterPool.buffer)
  })
  expect(ends).toHaveLength(3)
  for (const { reason, lastStep } of ends) {
    expect(reason).toMatchObject({
      code: 'train.diverged',
      message: expect.stringMatching(
        /after step 2 bucket 1 .*hashes to [0-9a-f]+ on ranks 0 and 2, but to [0-9a-f]+ on rank 1\. Rank 1 /,
      ),
    })
    expect(lastStep).toBe(2)
  }
})

test('a loss that is no number ends the run in its step, on every rank, with the op on those whose samples made it', async () => {
  const ends = await endsOf({ optimizer: 'sgd', lr: 1e30, hashEvery: 100 })
  expect(ends).toHaveLength(3)
  for (const { reason, lastStep } of ends) {
    expect(reason).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(
        /^step 2: ranks 0, 1 and 2: \w+\(f32\[4, \d+\], [^)]*\): the result is not finite, .*[Ll]ower the learning rate/,
      ),
    })
    expect(lastStep).toBe(1)
  }
  expect(new Set(ends.map(({ reason }) => String(reason))).size, 'one text on all').toBe(1)
})
