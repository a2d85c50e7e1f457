import { expect, test } from 'vitest'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { type Outputs, prepare } from '../../../src/graph/plan/prepare.ts'
import { ReferenceProgram } from '../../../src/graph/run/reference-program.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { type Tensor, TracedTensor } from '../../../src/graph/trace/tensor.ts'
import { activeTrace } from '../../../src/graph/trace/trace.ts'
import { expand } from '../../../src/kernels/sum/sum.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

// No rewrite moves what reads running statistics past the op that changes them: the rewritten program computes what the traced one does.

const x = Float32Array.from({ length: 24 }, (_, i) => Math.sin(i) + 2)
const types = { x: tensorType([6, 4]) }

type Body = (layer: BatchNorm1d, mean: Tensor, x: Tensor) => Outputs

function prepared(body: Body, useNaiveKernels: boolean) {
  const layer = new BatchNorm1d(4)
  return prepare(planningTarget, ({ x }) => body(layer, layer.runningMean!, x), types, {
    useNaiveKernels,
  })
}

const opsOf = (body: Body) =>
  prepared(body, false)
    .nodes.filter(({ op }) => !op.isView)
    .map(({ op }) => op.name)

/** As many rows of the statistics as the batch has, as gradients of sums are spread. */
const copied = (mean: Tensor): Tensor =>
  new TracedTensor(activeTrace('copied').emit(expand, [mean.value], { shape: [6, 4] })[0])

const bodies: Record<string, { body: Body; without: Body; joined: string[] }> = {
  'a chain and the sum that reads it': {
    body: (layer, mean, x) => {
      const chain = mean.mul(2).add(1)
      const y = layer.forward(x)
      return { sum: chain.sum(), y }
    },
    without: (_, mean) => ({ sum: mean.mul(2).add(1).sum() }),
    joined: ['sumOf'],
  },
  'a sum and the chain that goes on from it': {
    body: (layer, mean, x) => {
      const sum = mean.sum()
      const y = layer.forward(x)
      return { sum: sum.mul(3).add(1), y }
    },
    without: (_, mean) => ({ sum: mean.sum().mul(3).add(1) }),
    joined: ['sumOf'],
  },
  'a copy by broadcasting and the chain that reads it': {
    body: (layer, mean, x) => {
      const rows = copied(mean)
      const y = layer.forward(x)
      return { product: rows.mul(x), y }
    },
    without: (_, mean, x) => ({ product: copied(mean).mul(x) }),
    joined: ['map'],
  },
  'a reshaped buffer and the chain that reads it': {
    body: (layer, mean, x) => {
      const chain = mean.reshape([2, 2]).mul(2)
      const y = layer.forward(x)
      return { sum: chain.add(1), y }
    },
    without: (_, mean) => ({ sum: mean.reshape([2, 2]).mul(2).add(1) }),
    joined: ['map'],
  },
  // So small a share drops nothing.
  'a dropout and the conversion to float16 that alone reads it': {
    body: (layer, mean, x) => {
      const kept = dropout(mean.reshape([1, 4]), 1e-9, { maskIndex: 1 })
      const y = layer.forward(x)
      return { kept: kept.half().float(), y }
    },
    without: (_, mean) => ({
      kept: dropout(mean.reshape([1, 4]), 1e-9, { maskIndex: 1 })
        .half()
        .float(),
    }),
    joined: ['dropout', 'map'],
  },
  'a product and the copy that turns it': {
    body: (layer, mean, x) => {
      const product = x.reshape([2, 6, 2]).matmul(mean.reshape([2, 2]))
      const y = layer.forward(x)
      return { turned: product.permute(1, 0, 2), y }
    },
    without: (_, mean, x) => ({
      turned: x
        .reshape([2, 6, 2])
        .matmul(mean.reshape([2, 2]))
        .permute(1, 0, 2),
    }),
    joined: ['matmul'],
  },
}

test.each(Object.entries(bodies))('%s', async (_, { body, without, joined }) => {
  const [naive, rewritten] = [true, false].map(
    (useNaiveKernels) => new ReferenceProgram(prepared(body, useNaiveKernels)),
  )
  for (let run = 0; run < 2; run++) {
    const wanted = await naive.run({ x })
    const found = await rewritten.run({ x })
    for (const name in wanted) {
      wanted[name].forEach((value, i) => {
        expect(found[name][i], `run ${run}, ${name}[${i}]`).toBeCloseTo(value, 4)
      })
    }
  }
  // Where nothing changes in between, they are joined.
  expect(opsOf(without)).toEqual(joined)
})

test('reads of a buffer that nothing changes are joined into other kernels', () => {
  const fixed = new ModuleBuffer([4], Float32Array.of(1, 2, 3, 4))
  const ops = opsOf((layer, _, x) => {
    const chain = fixed.mul(2).add(1)
    const y = layer.forward(x)
    return { sum: chain.sum(), y }
  })
  expect(ops.sort()).toEqual(['batchNormTracked', 'sumOf'])
})
