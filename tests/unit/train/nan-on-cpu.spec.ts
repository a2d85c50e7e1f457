import { afterEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import { ringOf } from '../../support/process-ring.ts'
import { serveDigits } from '../../support/served-digits.ts'

// The built-in training on the plain references: the same look for the op as on a device.

afterEach(() => vi.restoreAllMocks())

test('a loss that is no number names the op on the cpu too', async () => {
  serveDigits(8, () => 255)
  const [group] = await ringOf(1)
  const trainer = new Trainer({
    task,
    runtime: new ReferenceRuntime(),
    group,
    config: parseTrainConfig({
      data: 'images',
      optimizer: 'sgd',
      lr: 2e19,
      steps: 4,
      batchSize: 2,
    }),
    baseUrl: 'https://data.example/',
    onEvent: () => undefined,
  })
  await expect(trainer.run()).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(/^step 2: \w+\(f32\[2, \d+\], .*\): the result is not finite, /),
  })
  trainer.destroy()
  group.destroy()
})
