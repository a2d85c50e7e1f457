import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { type DeviceMesh, initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

test.each<[string, (model: Module, mesh: DeviceMesh) => Promise<Module>]>([
  ['fullyShard', (model, mesh) => fullyShard(model, { mesh })],
  ['replicate', (model, mesh) => replicate(model, { mesh })],
  [
    'parallelizeModule',
    (model, mesh) =>
      parallelizeModule(model, mesh, { 0: new ColwiseParallel(), 1: new RowwiseParallel() }),
  ],
])('a parameter set on one rank after %s ends the next run on all', async (_, share) => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('cpu', [2], { processGroup })
    const layer = new Linear(2, 2)
    const model = await share(new Sequential(layer, new Linear(2, 2)), mesh)
    const optimizer = new SGD(model.parameters(), { lr: 1 })
    const step = await compile(
      ({ x }) => {
        model.forward(x).exp().sum().backward()
        optimizer.step()
        return {}
      },
      { x: tensorType([1, 2]) },
      { device: 'cpu' },
    )
    const run = () => step.run({ x: Float32Array.of(1, 2) })
    await run()
    const other = new Parameter([2, 2], new Float32Array(4))
    if (processGroup.rank === 1) Object.assign(layer, { weight: other })
    return run().catch((error: Error) => error.message)
  })
  const [zero, one] = ended.map(resultOf)
  expect(one).toMatch(
    'run: the step was compiled with "0.weight", in whose place the model now has',
  )
  expect(zero).toMatch(`rank 1 failed in a step: ${one}`)
})
