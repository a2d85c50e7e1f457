import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { backwardParts, lastPartsOf } from '../../../src/graph/plan/backward-parts.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { preparedOf } from '../../support/prepared-of.ts'
import { ringOf } from '../../support/process-ring.ts'
import { updateStep } from '../../support/update-step.ts'

const width = 16

/** x W0 W1 W2 ... */
class Chain extends Module {
  readonly weights: Parameter[]
  constructor(layers: number) {
    super()
    this.weights = Array.from({ length: layers }, (_, layer) => {
      const weight = new Parameter([width, width], uniform(layer, 0, width * width))
      Object.assign(this, { [`w${layer}`]: weight })
      return weight
    })
  }
  forward(x: Tensor): Tensor {
    return this.weights.reduce((h, weight) => h.matmul(weight).relu(), x)
  }
}

async function prepared(hasMore = false) {
  const groups = await ringOf(2)
  const [first] = await Promise.all(
    groups.map(async (processGroup) => {
      const ddp = new DistributedDataParallel(new Chain(4), {
        processGroup,
        bucketCapMb: 1 / 1024,
      })
      const optimizer = new SGD(ddp.parameters(), { lr: 0.1 })
      const step = updateStep(optimizer, ({ x }) => ddp.forward(x).square().mean())
      return compile(
        (given) => ({ ...step(given), ...(hasMore && { more: given.x.exp().cumsum(0) }) }),
        { x: tensorType([8, width]) },
        { runtime: new ReferenceRuntime() },
      )
    }),
  )
  return preparedOf(first)
}

test('a bucket may be updated once nothing of backward reads its parameters any more', async () => {
  const step = await prepared()
  const parts = backwardParts(step)
  expect(parts).toHaveLength(4)
  expect(parts[0].start).toBe(0)
  expect(parts[3].end).toBe(step.computeEnd)
  parts.slice(1).forEach(({ start }, i) => {
    expect(start).toBe(parts[i].end)
  })
  const last = lastPartsOf(step)
  // A layer's weight is read for the gradient by its input, which the layer before it needs.
  const reads = step.updates.map(({ update: { bucket } }, index) => {
    const readIn = parts.map(({ start, end }) =>
      step.plan.dispatches
        .slice(start, end)
        .some(({ bindings }) =>
          bindings.some(
            ({ place }) =>
              place.kind === 'stored' && bucket.parameters.some((one) => one === place.tensor),
          ),
        ),
    )
    return Math.max(index, readIn.lastIndexOf(true))
  })
  expect(last).toEqual(reads)
  expect(last[0]).toBeLessThan(3)
  expect(last[3]).toBe(3)
})

test('the last part runs to the end when the step computes more behind its gradients', async () => {
  const step = await prepared(true)
  expect(step.computeEnd).toBeGreaterThan(step.updates.at(-1)!.gradientsEnd)
  expect(backwardParts(step).at(-1)!.end).toBe(step.computeEnd)
})
