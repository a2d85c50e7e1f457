import { expect, test } from 'vitest'
import { batchNorm } from '../../../src/graph/functions/batch-norm.ts'
import { checkpointSequential } from '../../../src/graph/functions/checkpoint.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import {
  arenaAlignment,
  type Interval,
  maxAlive,
  packIntervals,
} from '../../../src/graph/memory/arena.ts'
import { type Prepared, prepare } from '../../../src/graph/plan/prepare.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import type { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { RandomStream } from '../../../src/util/random.ts'
import { type Shape, tensorType } from '../../../src/util/shape.ts'
import { cpuMs } from '../../support/cpu-time.ts'
import { models } from '../../support/models.ts'
import { planningTarget } from '../../support/planning-target.ts'

// The planner alone: what it promises is checked on the plan, without a device.

function prepareTraining(
  model: Module,
  sampleShape: Shape,
  rows: number,
  forward = (x: Parameters<Module['forward']>[0]) => model.forward(x),
): Prepared {
  const optimizer = new SGD(model.parameters())
  return prepare(
    planningTarget,
    ({ x, y }) => {
      const loss = crossEntropy(forward(x), y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([rows, ...sampleShape]), y: tensorType([rows], 'i32') },
  )
}

/** Everything that a plan must keep to; the shares' bytes as they are used at most. */
function checkPlan({ plan }: Prepared): void {
  for (const { dispatch, bindings } of plan.dispatches) {
    const shared = bindings.flatMap(({ place, sizeBytes }, i) =>
      place.kind === 'shared' ? [{ ...place, sizeBytes, access: dispatch.bindings[i].access }] : [],
    )
    for (const a of shared) {
      expect(a.offset % arenaAlignment).toBe(0)
      expect(a.offset + a.sizeBytes).toBeLessThanOrEqual(plan.sharedBytes[a.object])
      for (const b of shared) {
        if (a.object !== b.object) continue
        expect(a.access === 'read', `${dispatch.label} reads and writes one buffer`).toBe(
          b.access === 'read',
        )
        const isApart = a.offset + a.sizeBytes <= b.offset || b.offset + b.sizeBytes <= a.offset
        expect(a === b || a.access === 'read' || isApart, `${dispatch.label} writes overlap`).toBe(
          true,
        )
      }
    }
  }
}

for (const name of ['mlp', 'cnn'] as const) {
  test(`${name}: peak memory is at most 1.1 times the liveness bound`, () => {
    const { make, sampleShape } = models[name]
    for (const rows of [16, 20, 32, 64, 128]) {
      const began = cpuMs()
      const prepared = prepareTraining(make(), sampleShape, rows)
      const ms = cpuMs() - began
      const { peakBytes, lowerBoundBytes, sharedBytes } = prepared.plan
      console.log(
        `${name}, ${rows} rows: ${peakBytes} of ${lowerBoundBytes} = ${(peakBytes / lowerBoundBytes).toFixed(3)}, ${sharedBytes.length} buffers, ${ms.toFixed(0)} ms`,
      )
      checkPlan(prepared)
      expect(peakBytes).toBeLessThanOrEqual(1.1 * lowerBoundBytes)
    }
  })
}

const deep = (layers: number, width: number) => {
  const list = Array.from({ length: layers }, () => [new Linear(width, width), new ReLU()]).flat()
  return { list, model: { parameters: () => list.flatMap((m) => m.parameters()) } as Module }
}

test('a dispatch binds a bucket in one way when an op reads a gradient of it and writes another', () => {
  const sizes: readonly Shape[] = [[6, 4], [4], [4]]
  const parameters = sizes.map((shape) => new Parameter(shape, () => new Float32Array(24)))
  const optimizer = new SGD(parameters)
  const { plan } = prepare(
    planningTarget,
    () => {
      const [x, weight, bias] = parameters
      const loss = batchNorm(x, weight, bias, { training: true }).square().sum()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    {},
  )
  const both = plan.dispatches.flatMap(({ dispatch, bindings }) => {
    const ofPools = bindings.flatMap(({ place }, i) =>
      place.kind === 'pool' ? [{ pool: place.pool, ...dispatch.bindings[i] }] : [],
    )
    // WebGPU refuses a buffer that one dispatch binds as read-only and as writable.
    for (const a of ofPools)
      for (const b of ofPools)
        if (a.pool === b.pool) expect(a.access === 'read', dispatch.label).toBe(b.access === 'read')
    return ofPools.length > 2 ? [dispatch.wgsl] : []
  })
  expect(both.some((wgsl) => /read_write> dweight/.test(wgsl))).toBe(true)
})

test('checkpoints lower the predicted peak of a deep MLP by half and more', () => {
  const { list, model } = deep(24, 128)
  const run = (segments: number) =>
    prepareTraining(model, [128], 256, (x) => checkpointSequential(list, segments, x)).plan
  const plain = run(1)
  const checkpointed = run(5)
  console.log(
    `plain ${plain.peakBytes} of ${plain.lowerBoundBytes}, checkpointed ${checkpointed.peakBytes} of ${checkpointed.lowerBoundBytes}`,
  )
  expect(checkpointed.peakBytes).toBeLessThanOrEqual(0.5 * plain.peakBytes)
  expect(checkpointed.peakBytes).toBeLessThanOrEqual(1.1 * checkpointed.lowerBoundBytes)
})

test('the same program gets the same plan', () => {
  const plan = () => prepareTraining(models.cnn.make(), [1, 28, 28], 32).plan
  const shape = ({ dispatches, sharedBytes }: ReturnType<typeof plan>) =>
    JSON.stringify([
      sharedBytes,
      dispatches.map(({ bindings }) =>
        bindings.map(({ place }) => (place.kind === 'shared' ? place : place.kind)),
      ),
    ])
  expect(shape(plan())).toBe(shape(plan()))
})

test('a thousand tensors are planned within a second, and no arena passes the limit', () => {
  const random = new RandomStream(3, 0)
  const intervals = Array.from({ length: 1000 }, (_, at): Interval => {
    const sizeBytes = 4 * (1 + random.below(100_000))
    return { sizeBytes, first: at, last: at + 1 + random.below(60), arena: -1, offset: 0 }
  })
  const apart = intervals.slice(1).map((next, i) => [intervals[i], next] as const)
  const began = cpuMs()
  const sizes = packIntervals(intervals, apart, 2 ** 21)
  const ms = cpuMs() - began
  const total = sizes.reduce((a, b) => a + b, 0)
  console.log(`${total} of ${maxAlive(intervals)}, ${sizes.length} arenas, ${ms.toFixed(0)} ms`)
  expect(Math.max(...sizes)).toBeLessThanOrEqual(2 ** 21)
  for (const [i, a] of intervals.entries()) {
    for (const b of intervals.slice(i + 1)) {
      if (a.arena !== b.arena || b.first > a.last) continue
      expect(a.offset + a.sizeBytes <= b.offset || b.offset + b.sizeBytes <= a.offset).toBe(true)
    }
  }
  for (const [a, b] of apart) expect(a.arena).not.toBe(b.arena)
})

test('a plan that a device cannot run is refused by op, shapes and limit', () => {
  const { make, sampleShape } = models.mlp
  const refuse = (more: object) => () => {
    const model = make()
    prepare(
      { ...planningTarget, limits: { ...planningTarget.limits, ...more } },
      ({ x }) => ({ y: model.forward(x) }),
      { x: tensorType([64, ...sampleShape]) },
    )
  }
  expect(refuse({ maxBufferBytes: 300_000 })).toThrow(
    /matmul\+add\+relu\(f32\[64, 784\], f32\[256, 784\].*f32\[256, 784\] of 802816 bytes, but the device allows 300000.*smaller/,
  )
  expect(refuse({ maxBindings: 2 })).toThrow(
    /matmul\+add\+relu\(.*binds 4 tensors, but the device allows 2/,
  )
})
