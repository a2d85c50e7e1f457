import { describe, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { checkpoint } from '../../../src/graph/functions/checkpoint.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { Prepared } from '../../../src/graph/plan/prepare.ts'
import type { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential, type StateDict } from '../../../src/nn/module.ts'
import { LayerNorm } from '../../../src/nn/normalization.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import type { OptimizerStateDict } from '../../../src/optim/state-dict.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Ranks of one process, on the CPU, over real message channels.

const samples = 2
const length = 5
const types = { x: tensorType([samples, length], 'i32'), y: tensorType([samples * length], 'i32') }
const config = { vocabSize: 11, blockSize: length, layers: 2, heads: 2, width: 6 }

/** A rank's own tokens. */
const inputsOf = (rank: number, step: number) => ({
  x: Int32Array.from({ length: samples * length }, (_, i) => (i * 7 + rank * 3 + step) % 11),
  y: Int32Array.from({ length: samples * length }, (_, i) => (i * 5 + rank + step) % 11),
})

interface Saved {
  readonly model: StateDict
  readonly optimizer: OptimizerStateDict
}

interface Training {
  readonly wrap: (model: Module, group: ProcessGroup) => Promise<Module>
  readonly from?: Saved
  readonly firstStep?: number
  readonly isCheckpointed?: boolean
  /** Whether weights decay by their number of dimensions, and biases do not. */
  readonly decaysMatrices?: boolean
}

/** Groups as nanoGPT makes them. */
function byDimensions(parameters: readonly Parameter[]) {
  const [matrices, others] = [true, false].map((isMatrix) =>
    parameters.filter(({ shape }) => shape.length >= 2 === isMatrix),
  )
  return [
    { params: matrices, weightDecay: 1 },
    { params: others, weightDecay: 0 },
  ]
}

const sharded =
  (reshardAfterForward = true) =>
  async (model: Module, processGroup: ProcessGroup) => {
    const mesh = await initDeviceMesh('reference', [processGroup.size], { processGroup })
    const { transformer } = model as ReturnType<typeof gpt>
    for (const block of transformer.h) await fullyShard(block, { mesh, reshardAfterForward })
    return fullyShard(model, { mesh, reshardAfterForward })
  }

const replicated = async (model: Module, processGroup: ProcessGroup) =>
  new DistributedDataParallel(model, { processGroup })

async function train(group: ProcessGroup, training: Training) {
  const { wrap, from, firstStep = 0, isCheckpointed, decaysMatrices } = training
  // Only rank 0's values count.
  manualSeed(3 + group.rank)
  const model = gpt({ ...config, checkpoint: isCheckpointed ?? false })
  const wrapped = await wrap(model, group)
  const parameters = wrapped.parameters()
  const optimizer = new AdamW(decaysMatrices ? byDimensions(parameters) : parameters, {
    lr: 0.01,
    weightDecay: 0.1,
  })
  if (from) {
    model.loadStateDict(from.model)
    optimizer.loadStateDict(from.optimizer)
  }
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const logits = wrapped.forward(x) as Tensor
      const loss = crossEntropy(logits.reshape([samples * length, config.vocabSize]), y)
      loss.backward()
      const norm = clipGradNorm(wrapped.parameters(), 0.5)
      optimizer.step()
      return { loss, norm }
    },
    types,
    { device: 'reference' },
  )
  const norms: number[] = []
  for (let i = 0; i < 3; i++) {
    const { norm } = await step.run(inputsOf(group.rank, firstStep + i))
    norms.push(norm[0])
  }
  const counts = model.parameters().map(({ count }) => count)
  const saved: Saved = { model: await model.stateDict(), optimizer: await optimizer.stateDict() }
  return { norms, saved, counts }
}

const trainOn = async (size: number, training: Training) =>
  (await onRanks(size, (group) => train(group, training))).map(resultOf)

/** The largest difference between two saved states. */
function distance(a: Saved, b: Saved): number {
  const floats = ({ model, optimizer }: Saved) => [
    ...Object.values(model).map(({ data }) => data as Float32Array),
    ...Object.values(optimizer.state).flatMap((entry) =>
      Object.values(entry).flatMap((one) =>
        one !== null && typeof one === 'object' ? [one.data as Float32Array] : [],
      ),
    ),
  ]
  const [all, others] = [floats(a), floats(b)]
  expect(all.map((one) => one.length)).toEqual(others.map((one) => one.length))
  return Math.max(
    ...all.flatMap((one, i) => Array.from(one, (value, j) => Math.abs(value - others[i][j]))),
  )
}

describe('fullyShard', () => {
  test.each([
    ['', sharded(), {}],
    [' without freeing after forward', sharded(false), {}],
    [' of checkpointed blocks', sharded(), { isCheckpointed: true }],
    [' where matrices alone decay', sharded(), { decaysMatrices: true }],
  ])('on 2 ranks%s trains to the bits of DistributedDataParallel', async (_, wrap, options) => {
    const ddp = await trainOn(2, { wrap: replicated, ...options })
    const own = await trainOn(2, { wrap, ...options })
    for (const { saved, norms } of own) {
      expect(saved).toEqual(ddp[0].saved)
      for (const [i, norm] of norms.entries()) expect(norm).toBeCloseTo(ddp[0].norms[i], 6)
    }
    const whole = ddp[0].counts.reduce((sum, count) => sum + count, 0)
    for (const { counts } of own)
      expect(counts.reduce((sum, count) => sum + count, 0)).toBeLessThan(whole / 2 + counts.length)
  })

  test('on 3 ranks, whose parts are padded, agrees with DistributedDataParallel', async () => {
    const [ddp] = await trainOn(3, { wrap: replicated })
    const [zero, one, two] = await trainOn(3, { wrap: sharded() })
    expect(one.saved).toEqual(zero.saved)
    expect(two.saved).toEqual(zero.saved)
    // Buckets and parts are cut elsewhere, so that sums over ranks begin with another one.
    expect(distance(zero.saved, ddp.saved)).toBeLessThan(2e-6)
  })

  test('a run saved on 2 sharded ranks continues on 3, and on 2 of DistributedDataParallel', async () => {
    const whole = await trainOn(2, { wrap: replicated })
    const [first] = await trainOn(2, { wrap: sharded() })
    const next = { from: first.saved, firstStep: 3 }
    const [sharded3] = await trainOn(3, { wrap: sharded(), ...next })
    const [ddp3] = await trainOn(3, { wrap: replicated, ...next })
    expect(distance(sharded3.saved, ddp3.saved)).toBeLessThan(2e-6)
    const [ddp2] = await trainOn(2, { wrap: replicated, ...next })
    const [straight] = await trainOn(2, {
      wrap: replicated,
      from: whole[0].saved,
      firstStep: 3,
    })
    expect(ddp2.saved).toEqual(straight.saved)
  })

  test('refuses a loss with parameters that are not sharded, and a second call', async () => {
    const ended = await onRanks(2, async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const [first, last] = [new Linear(3, 4), new Linear(4, 2)]
      await fullyShard(first, { mesh })
      const again = await fullyShard(first, { mesh }).catch((error: Error) => error.message)
      const mixed = await compile(
        ({ x }) => {
          last.forward(first.forward(x)).sum().backward()
          return {}
        },
        { x: tensorType([2, 3]) },
        { device: 'reference' },
      ).catch((error: Error) => error.message)
      return [again, mixed]
    })
    for (const [again, mixed] of ended.map(resultOf)) {
      expect(again).toContain('fullyShard: Linear is already sharded.')
      expect(mixed).toContain(
        'backward: ranks average the gradient of "weight", but not that of "bias" with it',
      )
    }
  })
})

test('a sharded parameter takes contents of the whole, and of its part', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    const model = await fullyShard(new Linear(3, 3), { mesh })
    for (const parameter of model.parameters())
      if (parameter.shape.length > 1)
        parameter.assign(Float32Array.from({ length: 9 }, (_, i) => i + 1))
    const parts = [await model.weight.read()]
    model.weight.assign(new Float32Array(5).fill(processGroup.rank))
    parts.push(await model.weight.read())
    return { parts, whole: [...(await model.stateDict()).weight.data] }
  })
  const [zero, one] = ended.map(resultOf)
  expect(zero.parts.map((part) => [...part])).toEqual([
    [1, 2, 3, 4, 5],
    [0, 0, 0, 0, 0],
  ])
  expect([...one.parts[0]]).toEqual([6, 7, 8, 9, 0])
  expect(one.whole).toEqual([0, 0, 0, 0, 0, 1, 1, 1, 1])
})

test('a sharded step that differs between ranks is refused, and a run that fails ends the others', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    const model = await fullyShard(new Linear(3, 2), { mesh })
    const make = (calls: number) =>
      compile(
        ({ x }) => {
          let y = model.forward(x)
          for (let call = 1; call < calls; call++) y = y.add(model.forward(x.mul(call)))
          return { y }
        },
        { x: tensorType([2, 3]) },
        { device: 'reference' },
      )
    const other = await make(1 + processGroup.rank).catch((error: Error) => error.message)
    const step = await make(1)
    const input = new Float32Array(processGroup.rank === 0 ? 1 : 6)
    const run = await step.run({ x: input }).catch((error: Error) => error.message)
    return [other, run]
  })
  const [zero, one] = ended.map(resultOf)
  expect(zero[1]).toContain('input "x" must be a Float32Array of 6 elements')
  expect(one[1]).toContain(`rank 0 failed in a step: ${zero[1]}`)
  expect(one[0]).toBe(zero[0])
  expect(one[0]).toContain('ranks disagree about the step: nothing on rank 0, collective 1: gather')
})

test('detectAnomaly is refused in a sharded step, on all ranks', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    const model = await fullyShard(new Linear(3, 2), { mesh })
    return compile(
      ({ x }) => ({ y: model.forward(x) }),
      { x: tensorType([2, 3]) },
      { device: 'reference', detectAnomaly: true },
    ).catch((error: Error) => error.message)
  })
  for (const message of ended.map(resultOf))
    expect(message).toContain('compile: detectAnomaly does not work with fullyShard')
})

test('a mesh has a group for each dimension, and refuses sizes that do not fit', async () => {
  const ended = await onRanks(6, async (processGroup) => {
    const options = { meshDimNames: ['dp', 'pp'], processGroup }
    const mesh = await initDeviceMesh('reference', [2, 3], options)
    const wrong = await initDeviceMesh('reference', [4], { processGroup }).catch(
      (error: Error) => error.message,
    )
    return {
      dp: mesh.getGroup('dp').ranks,
      pp: mesh.get('pp').devices(),
      at: mesh.getCoordinate(),
      wrong,
    }
  })
  const [, , , , four] = ended.map(resultOf)
  expect(four).toEqual({
    dp: [1, 4],
    pp: ['rank:3/reference', 'rank:4/reference', 'rank:5/reference'],
    at: [1, 1],
    wrong:
      'initDeviceMesh: meshShape [4] must have as many places as there are ranks, 6. Change it, or start 4 ranks.',
  })
})

test('parameters of the whole, first read after a sharded layer, are gathered before they are read', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    const model = new Sequential(new Linear(3, 4), new LayerNorm(4), new Linear(4, 2))
    for (const at of [0, 2]) await fullyShard(model.at(at), { mesh })
    await fullyShard(model, { mesh })
    const types = { x: tensorType([2, 3]) }
    const step = await compile(({ x }) => ({ y: model.forward(x) }), types, { device: 'reference' })
    // Programs on a GPU run through these.
    const { stops } = step.prepared as Prepared
    return stops.flatMap(({ kind, ...stop }) =>
      'syncPoint' in stop ? `${kind} ${stop.syncPoint.number}` : [],
    )
  })
  for (const stops of ended.map(resultOf))
    expect(stops).toEqual(['begin 0', 'begin 1', 'end 1', 'begin 2', 'end 0', 'end 2'])
})

test('a checkpoint inside a sharded layer gathers its parameters once more', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    manualSeed(1)
    const layer = await fullyShard(new Linear(3, 3), { mesh })
    const step = await compile(
      ({ x }) => {
        const y = checkpoint((input: Tensor) => layer.forward(input).square(), x)
        const loss = y.sum()
        loss.backward()
        return { loss, gradient: layer.weight.grad! }
      },
      { x: tensorType([2, 3]) },
      { device: 'reference' },
    )
    const kinds = step.prepared.syncPoints.map(({ syncPoint }) => syncPoint)
    return { kinds, ...(await step.run({ x: Float32Array.of(1, 2, 3, 4, 5, 6) })) }
  })
  for (const { kinds } of ended.map(resultOf))
    expect(kinds).toEqual(['gather', 'gather', 'scatter'])
})
