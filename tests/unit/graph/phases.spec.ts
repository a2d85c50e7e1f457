import { expect, test } from 'vitest'
import { checkpoint } from '../../../src/graph/functions/checkpoint.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { computeRanges, phaseRanges, phasesOf } from '../../../src/graph/plan/phases.ts'
import { prepare, type TracedFunction } from '../../../src/graph/plan/prepare.ts'
import { sharesOfOnePhase, splitTime } from '../../../src/graph/run/phase-timer.ts'
import type { GraphNode } from '../../../src/graph/trace/value.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { models } from '../../support/models.ts'
import { planningTarget } from '../../support/planning-target.ts'

// Which dispatches of a step are forward, backward and optimizer.

const types = { x: tensorType([8, 784]), y: tensorType([8], 'i32') }
const model = models.mlp.make()
const optimizer = new SGD(model.parameters())

const training =
  (isCheckpointed: boolean): TracedFunction =>
  ({ x, y }) => {
    const logits = isCheckpointed
      ? checkpoint((input: typeof x) => model.forward(input), x)
      : model.forward(x)
    const loss = crossEntropy(logits, y)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }

test('a training step is forward, backward and optimizer, each in one piece that covers all dispatches', () => {
  const { phases, plan, computeEnd } = prepare(planningTarget, training(false), types)
  expect(phases.map(({ phase }) => phase)).toEqual(['forward', 'backward', 'optimizer'])
  // Two products forward; the loss computes its gradient too, so it begins backward.
  expect(phases[0]).toEqual({ phase: 'forward', start: 0, end: 2 })
  expect(phases[1]).toEqual({ phase: 'backward', start: 2, end: computeEnd })
  expect(phases[2]).toEqual({ phase: 'optimizer', start: computeEnd, end: plan.dispatches.length })
})

test('what checkpoint() computes again belongs to backward', () => {
  const plain = prepare(planningTarget, training(false), types)
  const again = prepare(planningTarget, training(true), types)
  expect(again.phases[0].end).toBe(plain.phases[0].end)
  expect(again.computeEnd).toBeGreaterThan(plain.computeEnd)
})

test('a program without backward is all forward', () => {
  const evaluation: TracedFunction = ({ x }) => ({ logits: model.forward(x) })
  const { phases } = prepare(planningTarget, evaluation, { x: types.x })
  expect(phases).toEqual([{ phase: 'forward', start: 0, end: 2 }])
})

test('between two backward passes is forward, after the last one backward', () => {
  const nodes = [3, 5, 8, 12, 20, 30].map((id) => ({ id }) as GraphNode)
  const backwards = [
    { from: 5, to: 9 },
    { from: 20, to: 25 },
  ]
  const phases = phasesOf({ backwards }, nodes)
  expect(phases.map((phase) => phase[0]).join('')).toBe('fbbfbb')
  // The third node dispatches nothing.
  const ranges = phaseRanges(phases, [2, 3, 3, 4, 6, 7])
  expect(ranges.map(({ start, end }) => [start, end])).toEqual([
    [0, 2],
    [2, 3],
    [3, 4],
    [4, 7],
  ])
})

test('with several ranks, ranges end where a bucket does', () => {
  const phases = [
    { phase: 'forward', start: 0, end: 4 },
    { phase: 'backward', start: 4, end: 10 },
    { phase: 'optimizer', start: 10, end: 12 },
  ] as const
  const updates = [6, 6, 9, 10].map((gradientsEnd) => ({ gradientsEnd })) as never
  const ranges = computeRanges({ phases, updates, computeEnd: 10 })
  expect(ranges.map(({ start, end }) => [start, end])).toEqual([
    [0, 4],
    [4, 6],
    [6, 9],
    [9, 10],
  ])
})

test('one phase alone needs no clock', () => {
  const forward = { phase: 'forward', start: 0, end: 3 } as const
  expect(splitTime(8, sharesOfOnePhase([forward]))).toEqual({
    forward: 8,
    backward: 0,
    optimizer: 0,
  })
  expect(sharesOfOnePhase([forward, { phase: 'backward', start: 3, end: 4 }])).toBeUndefined()
  expect(sharesOfOnePhase([])).toBeUndefined()
})

test('a time is split as the device was, and left whole where nothing is known', () => {
  const shares = { forward: 10, backward: 25, optimizer: 5 }
  expect(splitTime(8, shares)).toEqual({ forward: 2, backward: 5, optimizer: 1 })
  expect(splitTime(8, undefined)).toEqual({ forward: 0, backward: 8, optimizer: 0 })
})
