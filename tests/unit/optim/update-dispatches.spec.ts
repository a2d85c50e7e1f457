import { expect, test } from 'vitest'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import type { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Adagrad } from '../../../src/optim/adagrad.ts'
import { Adam, AdamW } from '../../../src/optim/adam.ts'
import { Lion } from '../../../src/optim/lion.ts'
import type { Optimizer } from '../../../src/optim/optimizer.ts'
import { RMSprop } from '../../../src/optim/rmsprop.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { models } from '../../support/models.ts'
import { planningTarget } from '../../support/planning-target.ts'

// However many parameters a model has, updating a pool of them is at most two dispatches.

const makers: Record<string, (parameters: Parameter[]) => Optimizer> = {
  sgd: (parameters) => new SGD(parameters, { lr: 0.1 }),
  'sgd, nesterov': (parameters) =>
    new SGD(parameters, { lr: 0.1, momentum: 0.9, nesterov: true, weightDecay: 1e-4 }),
  adam: (parameters) => new Adam(parameters),
  'adamw, amsgrad': (parameters) => new AdamW(parameters, { amsgrad: true }),
  rmsprop: (parameters) => new RMSprop(parameters, { momentum: 0.9, centered: true }),
  adagrad: (parameters) => new Adagrad(parameters),
  lion: (parameters) => new Lion(parameters),
}

test.each(Object.entries(makers))('%s', (_, make) => {
  const model = models.cnn.make()
  const optimizer = make(model.parameters())
  const { updates } = prepare(
    planningTarget,
    ({ x, y }) => {
      const loss = crossEntropy(model.forward(x), y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([4, ...models.cnn.sampleShape]), y: tensorType([4], 'i32') },
  )
  expect(updates).toHaveLength(1)
  expect(updates[0].update.bucket.parameters.length).toBeGreaterThan(4)
  expect(updates[0].end - updates[0].start).toBeGreaterThan(0)
  expect(updates[0].end - updates[0].start).toBeLessThanOrEqual(2)
})
