import { expect, test } from 'vitest'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import { cnn } from '../../../src/nn/cnn.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import type { Module } from '../../../src/nn/module.ts'
import { resnet18 } from '../../../src/nn/resnet.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { type TensorType, tensorType } from '../../../src/util/shape.ts'
import { documentedPlan, documentedPlans, measuredPlan } from '../../support/plan-table.ts'
import { planningTarget } from '../../support/planning-target.ts'

// What autocast saves of whole models' plans, and what it costs in dispatches: docs/how-it-works/float16.md has exactly these figures.

type Classifier = Module & Pick<ReturnType<typeof cnn>, 'forward'>

/** Rows of the page's table that were held to their plans. */
const held: string[] = []

/** Plans of a training step, which are what the row `name` of the page's table says. */
function plansOf(name: string, make: () => Classifier, x: TensorType, rows: number) {
  const plan = (enabled: boolean) => {
    const model = make()
    const optimizer = new SGD(model.parameters())
    return prepare(
      planningTarget,
      (given) => {
        const scores = autocast({ enabled }, () => model.forward(given.x))
        const loss = crossEntropy(scores.reshape([rows, -1]), given.y)
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x, y: tensorType([rows], 'i32') },
    ).plan
  }
  const [full, half] = [plan(false), plan(true)]
  const share = half.peakBytes / full.peakBytes
  held.push(name)
  expect(documentedPlan(name), name).toEqual(measuredPlan(half, full))
  return { share, half, full }
}

const images = (rows: number, channels: number, side: number) =>
  tensorType([rows, channels, side, side])

test('a ResNet-18 of width 16 takes less than 0.65 of the bytes that it takes in float32', () => {
  const make = () => resnet18({ numClasses: 10, smallInputs: true, width: 16 })
  for (const rows of [8, 32]) {
    const name = `ResNet-18 of width 16, ${rows} images of 32x32`
    const { share, half, full } = plansOf(name, make, images(rows, 3, 32), rows)
    expect(share).toBeLessThan(rows === 8 ? 0.65 : 0.58)
    expect(half.peakBytes / half.lowerBoundBytes).toBeLessThan(1.1)
    expect(half.dispatches.length).toBeLessThan(1.2 * full.dispatches.length)
  }
})

test('the ResNet-18 for large images takes less than in float32 even where weights outweigh activations', () => {
  const make = () => resnet18({ numClasses: 10, width: 16 })
  const name = 'ResNet-18 of width 16 for large images, 8 of 32x32'
  expect(plansOf(name, make, images(8, 3, 32), 8).share).toBeLessThan(0.9)
})

test('the CNN takes less than 0.6', () => {
  const { share } = plansOf('CNN, batch 64', () => cnn(), images(64, 1, 28), 64)
  expect(share).toBeLessThan(0.6)
})

test('a GPT of 12 layers takes less than 0.6, in at most 400 dispatches', () => {
  const make = () =>
    gpt({ vocabSize: 65, blockSize: 64, layers: 12, heads: 4, width: 64, dropout: 0.1 })
  const name = 'GPT of 12 layers (width 64, 4 heads, T 64, batch 4)'
  const { share, half } = plansOf(name, make, tensorType([4, 64], 'i32'), 256)
  expect(share).toBeLessThan(0.6)
  expect(half.dispatches.length).toBeLessThanOrEqual(400)
})

test('the table has no other rows, but for that of tests/unit/optim/amp.spec.ts', () => {
  expect(documentedPlans()).toEqual([...held, 'eight layers of width 64 at 1,024 rows'])
})
