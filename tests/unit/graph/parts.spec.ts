import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { matmul } from '../../../src/graph/functions/matmul.ts'
import { cat } from '../../../src/graph/functions/shape.ts'
import { isSplit, partsOf } from '../../../src/graph/plan/parts.ts'
import {
  type InputTypes,
  planStep,
  type TracedFunction,
  traceStep,
} from '../../../src/graph/plan/prepare.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
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
  const first = new Linear(4, 5)
  const last = await new Linear(5, 3).to('reference')
  await expect(
    compile(({ x }) => ({ y: last.forward(first.forward(x)) }), { x: types.x }, { device: 'cpu' }),
  ).rejects.toThrow(
    /matmul.*argument 0 is on cpu, argument 1 \("weight"\) is on reference.*\. Move argument 0 there: x\.to\("reference"\)/,
  )
})

test('layers on two devices that exchange nothing compile to a part for each', async () => {
  const { first, last } = await layers('webgpu:1')
  const step = traceStep(
    { type: 'webgpu', index: 0 },
    ({ x, h }) => ({ y: first.forward(x), z: last.forward(h) }),
    { x: types.x, h: tensorType([6, 5]) },
  )
  expect(isSplit(step)).toBe(true)
  expect(partsOf(step)).toHaveLength(2)
})

test('an error for two devices moves what flows to what was made last, and parameters by their module', async () => {
  const { first, last } = await layers('webgpu:1')
  const errorOf = (fn: TracedFunction) => {
    try {
      partsFor(fn, { x: types.x })
      return undefined
    } catch (error) {
      return (error as Error).message
    }
  }
  const skipped = errorOf(({ x }) => {
    const hidden = first.forward(x)
    return { y: cat([hidden, last.forward(hidden.to('webgpu:1'))], 1) }
  })
  expect(skipped).toContain('cat(f32[6, 5], f32[6, 3]): argument 0 is on webgpu:0, argument 1 is')
  expect(skipped).toContain('. Move argument 0 there: x.to("webgpu:1").')
  const apart = errorOf(() => ({ y: matmul(last.weight, first.weight) }))
  expect(apart).toContain('. Move both to one device: await module.to("webgpu:1").')
  // A parameter of no module is described by its shape.
  const own = new Parameter([6, 5], new Float32Array(30))
  await own.moveToDevice({ type: 'webgpu', index: 1 })
  expect(errorOf(({ x }) => ({ y: cat([first.forward(x), own], 1) }))).toContain(
    'argument 1 (a tensor [6, 5]) is on webgpu:1. Move argument 0 there: x.to("webgpu:1").',
  )
})

test('every tensor of a step has a device: where it lies, where it was moved, or that of the program', async () => {
  const { first, last } = await layers('webgpu:1')
  const unplaced = new Linear(4, 5)
  const names: string[] = []
  const note = (...tensors: Tensor[]) =>
    names.push(...tensors.map(({ device }) => formatDevice(device!)))
  partsFor(
    ({ x }) => {
      const hidden = first.forward(x)
      note(x, x.to('webgpu:1'), x.to('webgpu:1').mul(2).sum(), x.to('webgpu:1').to('webgpu:0'))
      note(hidden, hidden.to('webgpu:1'), first.weight, last.weight, unplaced.weight)
      return { y: last.forward(hidden.to(last.weight.device!)) }
    },
    { x: types.x },
  )
  const [zero, one] = ['webgpu:0', 'webgpu:1']
  expect(names).toEqual([zero, one, one, zero, zero, one, zero, one, zero])
  expect(unplaced.weight.device).toBe(undefined)
})

test('what works on one device only is refused for several', async () => {
  const { first, last } = await layers('webgpu:1')
  const fn: TracedFunction = ({ x }) => ({
    y: last.forward(first.forward(x).to('webgpu:1')),
  })
  const compiled = compile(fn, { x: types.x }, { device: 'reference', detectAnomaly: true })
  await expect(compiled).rejects.toThrow(
    'over several devices does not work with detectAnomaly yet',
  )
})
