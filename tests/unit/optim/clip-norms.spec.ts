import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { CpuRuntime } from '../../../src/graph/memory/runtime.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { checkClippedNorm, normCases } from '../../support/clip-norms.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new CpuRuntime()

test.each(normCases)('norm %s is PyTorch’s', async (_, one) => {
  await checkClippedNorm(one, runtime)
})

test.each(normCases)('norm %s of two ranks’ parts is that of the whole', async (_, one) => {
  await Promise.all(
    (await ringOf(2)).map((processGroup) =>
      checkClippedNorm(one, runtime, (model) => {
        new DistributedDataParallel(model, { processGroup })
      }),
    ),
  )
})

test.each([-1, Number.NaN, 1e-45, 1e300])('norm %s is refused', async (normType) => {
  const layer = new Linear(1, 1)
  const optimizer = new SGD(layer.parameters())
  const compiling = compile(
    () => {
      layer.weight.sum().add(layer.bias!.sum()).backward()
      clipGradNorm(layer.parameters(), 1, { normType })
      optimizer.step()
      return {}
    },
    {},
    { runtime },
  )
  await expect(compiling).rejects.toThrow(
    /normType must be a number of at least 0, Infinity or -Inf/,
  )
})
