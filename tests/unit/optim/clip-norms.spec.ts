import { describe, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Limit as ClipLimit, clipGradNorm, clipGradValue } from '../../../src/optim/clip.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { checkClippedNorm, normCases } from '../../support/clip-norms.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()

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

const clips = {
  clipGradNorm: (limit: ClipLimit, all: Parameter[]) => ({ norm: clipGradNorm(all, limit) }),
  clipGradValue: (limit: ClipLimit, all: Parameter[]) => {
    clipGradValue(all, limit)
    return {}
  },
}

describe.each(['clipGradNorm', 'clipGradValue'] as const)('%s', (name) => {
  const stepWith = (limit: ClipLimit) => {
    const layer = new Linear(1, 1)
    const optimizer = new SGD(layer.parameters())
    const step = compile(
      () => {
        layer.weight.sum().add(layer.bias!.sum()).backward()
        const outputs = clips[name](limit, layer.parameters())
        optimizer.step()
        return outputs
      },
      {},
      { runtime },
    )
    return { step, optimizer }
  }
  const refusal = new RegExp(`${name}: (maxNorm|limit) must be a number of at least 0, got `)
  const wrong = [Number.NaN, -1, '1', null, undefined, [1]] as number[]

  test.each(wrong)('refuses a limit of %j', async (limit) => {
    await expect(stepWith(limit).step).rejects.toThrow(refusal)
  })

  test('refuses a run whose limit is wrong, and counts it nowhere', async () => {
    let limit = 1
    const { step, optimizer } = stepWith(() => limit)
    const program = await step
    for (limit of wrong) await expect(program.run({})).rejects.toThrow(refusal)
    expect(optimizer.stepCount).toBe(0)
    for (limit of [0, Number.POSITIVE_INFINITY]) await program.run({})
    expect(optimizer.stepCount).toBe(2)
  })
})
