import { describe, expect, test } from 'vitest'
import { sampleCount } from '../../../src/graph/functions/linear.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { partsOf } from '../../../src/graph/plan/parts.ts'
import { type InputTypes, planStep, traceStep } from '../../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import type { ScalarSlot } from '../../../src/kernels/op.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { DataParallel } from '../../../src/parallel/data-parallel/data-parallel.ts'
import { gather, replicate, scatter } from '../../../src/parallel/data-parallel/replicas.ts'
import type { PlacedDevice } from '../../../src/util/device.ts'
import { bytesOf, tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

const gpu0: PlacedDevice = { type: 'webgpu', index: 0 }
const types = { x: tensorType([6, 4]), y: tensorType([6], 'i32') }

/** Calls `fn` inside a trace. */
function traced(fn: (inputs: Record<string, Tensor>) => void, inputs: InputTypes = types): void {
  traceStep(
    gpu0,
    (given) => {
      fn(given)
      return {}
    },
    inputs,
  )
}

const shapes = (tensors: unknown) => (tensors as Tensor[]).map(({ shape }) => shape)

describe('scatter', () => {
  test('cuts tensors as chunk does, wherever they stand, and hands on the rest', () => {
    traced(({ x, y }) => {
      const shares = scatter([x, { labels: [y, 'cat'] }, 7, new Map([['x', x]])], [0, 1, 2, 3])
      expect(shares).toHaveLength(3)
      const [first, nested, number, map] = shares[1] as [Tensor, never, number, Map<string, Tensor>]
      expect(first.shape).toEqual([2, 4])
      const { labels } = nested as { labels: [Tensor, string] }
      expect(labels[0].shape).toEqual([2])
      expect(labels[1]).toBe('cat')
      expect(number).toBe(7)
      expect(map.get('x')?.shape).toEqual([2, 4])
    })
  })

  test('leaves devices out where the batch is smaller', () => {
    traced(({ x }) => expect(scatter([x.narrow(0, 0, 1)], [0, 1])).toHaveLength(1))
  })

  test('refuses a device that is listed twice, none, a scalar, and shares that do not match', () => {
    traced(({ x, y }) => {
      expect(() => scatter([x, x.sum()], [0, 1])).toThrow(
        'one of [] has no axis 0 to cut for 2 devices. Give it that axis, or pass a number',
      )
      expect(() => scatter([x], [0, 'webgpu:0'])).toThrow('scatter: devices lists webgpu:0 twice')
      expect(() => scatter([x], [])).toThrow('devices lists none')
      expect(() => scatter([x, y.narrow(0, 0, 1)], [0, 1])).toThrow(
        'scatter: a tensor of [1] makes 1 shares for 2 devices, and one of [6, 4] 2',
      )
    })
  })
})

describe('gather', () => {
  test('joins along an axis, scalars to a vector, and structures one by one', () => {
    traced(({ x }) => {
      const joined = gather(
        [
          { a: x, loss: x.sum() },
          { a: x, loss: x.sum() },
        ],
        0,
      ) as {
        a: Tensor
        loss: Tensor
      }
      expect(joined.a.shape).toEqual([12, 4])
      expect(joined.loss.shape).toEqual([2])
      expect((gather([x, x], 0, 1) as Tensor).shape).toEqual([6, 8])
      expect(shapes(gather([[x], [x]], 0))).toEqual([[12, 4]])
    })
  })

  test('refuses an empty list', () => {
    traced(() => {
      expect(() => gather([], 0)).toThrow('gather: outputs has nothing to join. Pass a list')
    })
  })

  test('says what to do for sequences of different lengths', () => {
    traced(({ x }) => {
      expect(() => gather([x, x.narrow(1, 0, 2)], 0)).toThrow(
        /padPackedSequence\(packed, \{ totalLength \}\)/,
      )
    })
  })
})

/** Counts its calls, and sets an attribute. */
class Counting extends Module {
  norm = new BatchNorm1d(4)
  layer = new Linear(4, 3)
  calls: string[] = []
  seen = 0

  forward(x: Tensor): Tensor {
    this.seen += 1
    this.calls.push(String(x.device?.index ?? 'input'))
    return this.layer.forward(this.norm.forward(x))
  }
}

describe('replicas', () => {
  test('lose what forward sets on the module, and run hooks once on each device', () => {
    const module = new Counting()
    let hooks = 0
    module.layer.registerForwardHook(() => {
      hooks += 1
      return undefined
    })
    traced(({ x }) => {
      for (const replica of replicate(module, [0, 1])) replica.forward(x)
    })
    expect(module.seen).toBe(0)
    expect(hooks).toBe(2)
  })
})

describe('DataParallel', () => {
  const partsFor = (model: Module) => {
    const optimizer = new SGD(model.parameters(), { lr: 0.1 })
    const step = traceStep(
      gpu0,
      ({ x, y }) => {
        const loss = crossEntropy(model.forward(x), y)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      types,
    )
    return partsOf(step).map(({ step: own }) => planStep(planningTarget, own))
  }

  test('copies parameters there and gradients back, and updates on the first device alone', () => {
    const module = new Counting()
    const [one, two] = partsFor(new DataParallel(module, { deviceIds: [0, 1] }))
    const parameterBytes = module
      .parameters()
      .reduce((sum, { value }) => sum + bytesOf(value.type), 0)
    const outputBytes = 3 * 3 * 4
    const sent = ({ crossings }: typeof one) =>
      crossings
        .filter(({ kind }) => kind === 'send')
        .flatMap(({ values }) => values)
        .reduce((sum, { value }) => sum + bytesOf(value.type), 0)
    expect(sent(one)).toBe(parameterBytes + outputBytes)
    expect(sent(two)).toBe(parameterBytes + outputBytes)
    expect([one.updates.length, two.updates.length]).toEqual([1, 0])
  })

  test('moves the running statistics of the first device by its own share alone', () => {
    const [one, two] = partsFor(new DataParallel(new Counting(), { deviceIds: [0, 1] }))
    const changes = ({ nodes }: typeof one) => nodes.some(({ op }) => op.updates?.length)
    expect([changes(one), changes(two)]).toEqual([true, false])
  })

  test.each([
    [0, [0, 0]],
    [4, [3, 1]],
    [6, [3, 3]],
    [undefined, [3, 3]],
  ])('divides the samples that count among the devices: %s', (count, expected) => {
    class Losses extends Module {
      layer = new Linear(4, 3)
      forward(x: Tensor, y: Tensor): Tensor {
        return crossEntropy(this.layer.forward(x), y, { count: sampleCount() })
      }
    }
    const model = new DataParallel(new Losses(), { deviceIds: [0, 1] })
    const { nodes, trace } = traceStep(gpu0, ({ x, y }) => ({ losses: model.forward(x, y) }), types)
    trace.scalars.begin(count === undefined ? {} : { count })
    const counts = nodes.flatMap(({ op, attrs }) =>
      op.name === 'crossEntropy' ? [(attrs as { count: ScalarSlot }).count] : [],
    )
    expect(counts.map((slot) => trace.scalars.value(slot))).toEqual(expected)
  })

  test('prefixes keys with module, as in PyTorch', async () => {
    const model = new DataParallel(new Linear(2, 2), { deviceIds: [0, 1] })
    expect(Object.keys(await model.stateDict())).toEqual(['module.weight', 'module.bias'])
  })

  test('runs the module as it is on the CPU and without devices', () => {
    const module = new Linear(4, 3)
    for (const [device, deviceIds] of [
      [{ type: 'reference', index: 0 }, [0, 1]],
      [gpu0, []],
    ] as const) {
      const step = traceStep(
        device,
        ({ x }) => ({ y: new DataParallel(module, { deviceIds }).forward(x) }),
        types,
      )
      expect(partsOf(step)).toHaveLength(1)
    }
  })

  test('names a parameter that is not on the first device', async () => {
    const module = new Linear(4, 3)
    await module.to('webgpu:1')
    expect(() => partsFor(new DataParallel(module, { deviceIds: [0, 1] }))).toThrow(
      'DataParallel: "weight" is on webgpu:1, but deviceIds[0] is webgpu:0. Move the module',
    )
  })
})
