import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { detectAnomaly } from '../../../src/graph/compile/detect-anomaly.ts'
import { runEagerly } from '../../../src/graph/compile/eager.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { type TracedFunction, traceStep } from '../../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { DataParallel } from '../../../src/parallel/data-parallel/data-parallel.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks } from '../../support/ranks-of-one.ts'

// What does not work with a divided model is refused: split.md lists it.

const types = { x: tensorType([2, 4]) }
const inputs = { x: new Float32Array(8).fill(1) }

const divided = {
  fullyShard: async (model: Sequential, processGroup: ProcessGroup) =>
    fullyShard(model, { mesh: await initDeviceMesh('reference', [2], { processGroup }) }),
  replicate: async (model: Sequential, processGroup: ProcessGroup) =>
    replicate(model, { mesh: await initDeviceMesh('reference', [2], { processGroup }) }),
  parallelizeModule: async (model: Sequential, processGroup: ProcessGroup) =>
    parallelizeModule(model, await initDeviceMesh('reference', [2], { processGroup }), {
      '0': new ColwiseParallel(),
      '2': new RowwiseParallel(),
    }),
}

/** What a call says on each of two ranks with a model that is divided. */
async function refusals(
  divide: (model: Sequential, group: ProcessGroup) => Promise<Module>,
  call: (step: TracedFunction) => Promise<unknown>,
): Promise<string[]> {
  const ended = await onRanks(2, async (group) => {
    const model = await divide(
      new Sequential(new Linear(4, 6), new ReLU(), new Linear(6, 2)),
      group,
    )
    const optimizer = new SGD(model.parameters(), { lr: 0.1 })
    await call(({ x }) => {
      optimizer.zeroGrad()
      const loss = (model.forward(x) as Tensor).mean()
      loss.backward()
      optimizer.step()
      return { loss }
    })
  })
  return ended.map((one) => (one.status === 'rejected' ? one.reason.message : 'not refused'))
}

for (const [name, divide] of Object.entries(divided)) {
  test(`compileAccumulated is refused with ${name}`, async () => {
    const messages = await refusals(divide, (step) =>
      compileAccumulated(step, types, { steps: 2, device: 'reference' }),
    )
    for (const message of messages) expect(message).toContain('compileAccumulated')
  })

  test(`${name} is refused with DistributedDataParallel, in either order`, async () => {
    const first = await refusals(
      async (model, processGroup) => {
        await divide(model, processGroup)
        return new DistributedDataParallel(model, { processGroup })
      },
      (step) => compile(step, types, { device: 'reference' }),
    )
    const last = await refusals(
      async (model, processGroup) => {
        const wrapped = new DistributedDataParallel(model, { processGroup })
        await divide(model, processGroup)
        return wrapped
      },
      (step) => compile(step, types, { device: 'reference' }),
    )
    for (const message of [...first, ...last]) expect(message).toContain('DistributedDataParallel')
  })

  test(`detectAnomaly is refused with ${name}`, async () => {
    const messages = await refusals(divide, (step) =>
      detectAnomaly(new ReferenceRuntime(), step, types, inputs),
    )
    for (const message of messages) expect(message).toContain('detectAnomaly')
  })

  test(`runEagerly is refused with ${name}`, async () => {
    const messages = await refusals(divide, (step) =>
      runEagerly(new ReferenceRuntime(), step, types, inputs),
    )
    for (const message of messages) expect(message).toContain('eager')
  })
}

test.each(['fullyShard', 'parallelizeModule'] as const)(
  'DataParallel is refused with %s',
  async (name) => {
    const messages = await refusals(
      async (model, group) =>
        new DataParallel(await divided[name](model, group), { deviceIds: [0, 1] }),
      async (step) => {
        traceStep({ type: 'webgpu', index: 0 }, step, types)
      },
    )
    for (const message of messages)
      expect(message).toMatch(
        /^DataParallel: ranks have divided "module\.0\.weight", by fullyShard or/,
      )
  },
)

test('detectAnomaly and runEagerly are refused for layers on several devices', async () => {
  const first = new Linear(4, 6)
  const second = new Linear(6, 2)
  await first.to('reference')
  const step: TracedFunction = ({ x }) => ({ y: second.forward(first.forward(x).to('webgpu:1')) })
  for (const run of [detectAnomaly, runEagerly])
    await expect(run(new ReferenceRuntime(), step, types, inputs)).rejects.toThrow(
      'several devices',
    )
})

test('a layer that is replaced after the model was wrapped is refused, since ranks would train it alone', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const model = new Sequential(new Linear(4, 2), new Linear(2, 1))
    const wrapped = new DistributedDataParallel(model, { processGroup })
    model.set(1, new Linear(2, 1))
    const optimizer = new SGD(model.at(1).parameters(), { lr: 0.1 })
    const step: TracedFunction = ({ x }) => {
      const loss = wrapped.forward(x).mean()
      loss.backward()
      optimizer.step()
      return { loss }
    }
    await expect(compile(step, types, { runtime: new ReferenceRuntime() })).rejects.toThrow(
      'DistributedDataParallel: parameter "1.weight" was not in the model when it was wrapped',
    )
    return true
  })
  expect(ended).toEqual([0, 1].map(() => ({ status: 'fulfilled', value: true })))
})
