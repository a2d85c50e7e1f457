import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { isSplit, partsOf } from '../../../src/graph/plan/parts.ts'
import {
  type InputTypes,
  planStep,
  type TracedFunction,
  traceStep,
} from '../../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { formatDevice } from '../../../src/util/device.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

const types = { x: tensorType([6, 4]), y: tensorType([6], 'i32') }

const partsFor = (fn: TracedFunction, inputs: InputTypes = types) =>
  partsOf(traceStep({ type: 'webgpu', index: 0 }, fn, inputs)).map(({ device, step }) => ({
    name: formatDevice(device),
    step,
    plan: planStep(planningTarget, step),
  }))

const opsOf = ({ nodes }: { nodes: readonly { op: { name: string } }[] }) =>
  nodes.map(({ op }) => op.name)

/** Two layers: on `webgpu:0`, and on `second`. */
async function layers(second: string) {
  const first = new Linear(4, 5)
  const last = new Linear(5, 3)
  await first.to('webgpu:0')
  await last.to(second)
  return { first, last, parameters: [...first.parameters(), ...last.parameters()] }
}

describe('a step of two layers on two devices', () => {
  const made = async (isTrained: boolean) => {
    const { first, last, parameters } = await layers('webgpu:1')
    const optimizer = new SGD(parameters, { lr: 0.1 })
    return partsFor(({ x, y }) => {
      const loss = crossEntropy(last.forward(first.forward(x).relu().to('webgpu:1')), y)
      if (!isTrained) return { loss }
      loss.backward()
      optimizer.step()
      return { loss }
    })
  }

  test('forward has a send on the first device and a receive on the second', async () => {
    const [one, two] = await made(false)
    expect([one.name, two.name]).toEqual(['webgpu:0', 'webgpu:1'])
    expect(opsOf(one.step).filter((op) => op === 'send')).toHaveLength(1)
    expect(opsOf(two.step).filter((op) => op === 'receive')).toHaveLength(1)
    expect(one.plan.crossings.map(({ kind }) => kind)).toEqual(['send'])
    expect(two.plan.crossings.map(({ kind }) => kind)).toEqual(['receive'])
    expect(two.plan.crossings[0].values[0].number).toBe(one.plan.crossings[0].values[0].number)
    expect(two.plan.crossings[0].values[0].value.type.shape).toEqual([6, 5])
  })

  test('each device reads its own inputs, and has the outputs that it computes', async () => {
    const [one, two] = await made(false)
    expect(Object.keys(one.step.inputs)).toEqual(['x'])
    expect(Object.keys(two.step.inputs)).toEqual(['y'])
    expect(one.step.outputs.map(({ name }) => name)).toEqual([])
    expect(two.step.outputs.map(({ name }) => name)).toEqual(['loss'])
  })

  test('backward sends the gradient the other way, and each device updates its own parameters', async () => {
    const [one, two] = await made(true)
    expect(one.plan.crossings.map(({ kind }) => kind)).toEqual(['send', 'receive'])
    expect(two.plan.crossings.map(({ kind }) => kind)).toEqual(['receive', 'send'])
    for (const { plan, name } of [one, two]) {
      expect(plan.updates).toHaveLength(1)
      const { bucket } = plan.updates[0].update
      expect(bucket.parameters).toHaveLength(2)
      for (const { device } of bucket.parameters) expect(formatDevice(device!)).toBe(name)
    }
    const ends = (plan: typeof one.plan) => plan.stops.map(({ end }) => end)
    expect(ends(one.plan)[0]).toBeLessThan(ends(one.plan)[1] + 1)
    expect(one.plan.updates[0].end).toBe(one.plan.plan.dispatches.length)
  })
})

test('a step whose tensors stay on one device is not split', async () => {
  const { first, last } = await layers('webgpu:0')
  const step = traceStep(
    { type: 'webgpu', index: 0 },
    ({ x }) => ({ y: last.forward(first.forward(x.to('webgpu:0')).to('webgpu:0')) }),
    { x: types.x },
  )
  expect(isSplit(step)).toBe(false)
})

test('a constant is made on each device that reads it', async () => {
  const { first, last } = await layers('webgpu:1')
  const parts = partsFor(
    ({ x }) => {
      const shift = x.sum().mul(0)
      const h: Tensor = first.forward(x).add(shift)
      return { y: last.forward(h.to('webgpu:1')).add(shift) }
    },
    { x: types.x },
  )
  for (const { step } of parts) {
    expect(Object.keys(step.inputs)).toEqual(['x'])
    expect(opsOf(step)).toContain('sumOf')
  }
})

test('an op whose inputs are on two devices is refused, with both', async () => {
  const { first, last } = await layers('webgpu:1')
  expect(() =>
    partsFor(
      ({ x }) => ({ y: last.forward(first.forward(x)), z: first.forward(x).to('webgpu:1') }),
      { x: types.x },
    ),
  ).toThrow(
    /matmul.*argument 0 is on webgpu:0, argument 1 \("weight"\) is on webgpu:1.*Move one of them: x\.to\("webgpu:0"\)/,
  )
})

test('what works on one device only is refused for several', async () => {
  const { first, last } = await layers('webgpu:1')
  const fn: TracedFunction = ({ x }) => ({
    y: last.forward(first.forward(x).to('webgpu:1')),
  })
  const compiled = compile(fn, { x: types.x }, { device: 'cpu', detectAnomaly: true })
  await expect(compiled).rejects.toThrow(
    'over several devices does not work with detectAnomaly yet',
  )
})
