import { expect, test } from 'vitest'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { type Prepared, prepare } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

// The planner on GPTs: near its bound, and what checkpointing each block saves.

const length = 64
const batch = 4

function prepareGpt(layers: number, isCheckpointed: boolean, isHalf = false): Prepared {
  const model = gpt({
    vocabSize: 65,
    blockSize: length,
    layers,
    heads: 4,
    width: 64,
    dropout: 0.1,
    checkpoint: isCheckpointed,
  })
  const optimizer = new SGD(model.parameters())
  return prepare(
    planningTarget,
    ({ x, y }) => {
      const logits = autocast({ enabled: isHalf }, () => model.forward(x))
      const loss = crossEntropy(logits.reshape([batch * length, 65]), y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([batch, length], 'i32'), y: tensorType([batch * length], 'i32') },
  )
}

const share = ({ plan: { peakBytes, lowerBoundBytes } }: Prepared) => peakBytes / lowerBoundBytes

test('a GPT of 2 layers is planned within 1.1 of its bound', () => {
  const prepared = prepareGpt(2, false)
  console.log(
    `gpt, 2 layers: ${prepared.plan.peakBytes} bytes, ${share(prepared).toFixed(3)} of the bound`,
  )
  expect(share(prepared)).toBeLessThanOrEqual(1.1)
})

test('checkpointing the blocks of a GPT of 12 layers halves its peak and more', () => {
  const plain = prepareGpt(12, false)
  const checkpointed = prepareGpt(12, true)
  for (const [name, one] of Object.entries({ plain, checkpointed })) {
    console.log(
      `gpt, 12 layers, ${name}: ${one.plan.peakBytes} bytes, bound ${one.plan.lowerBoundBytes}, ${share(one).toFixed(3)}`,
    )
    expect(share(one)).toBeLessThanOrEqual(1.1)
  }
  expect(checkpointed.plan.peakBytes).toBeLessThanOrEqual(0.5 * plain.plan.peakBytes)
})

test('autocast takes a third and more from the peak of a GPT of 2 layers', () => {
  const plain = prepareGpt(2, false).plan.peakBytes
  const half = prepareGpt(2, false, true).plan.peakBytes
  console.log(`gpt, 2 layers, autocast: ${half} bytes, in float32 ${plain}`)
  expect(half).toBeLessThanOrEqual(0.667 * plain)
})
