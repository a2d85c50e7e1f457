import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { gelu, leakyRelu, silu, softplus } from '../../src/graph/functions/activations.ts'
import { maximum, minimum } from '../../src/graph/functions/elementwise.ts'
import { binaryCrossEntropyWithLogits, huberLoss } from '../../src/graph/functions/losses.ts'
import { adaptiveAvgPool2d, maxPool2d } from '../../src/graph/functions/pooling.ts'
import { argmax, logsumexp, topk } from '../../src/graph/functions/reductions.ts'
import { CpuRuntime } from '../../src/graph/memory/runtime.ts'
import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

// NaN goes through every function as it does in PyTorch 1.13, so that a loss shows it: none may swallow it.

const nan = Number.NaN

/** By function: what torch makes of [1, NaN, -1]; numbers to four digits. */
const expected: Record<string, { of: (x: Tensor) => Tensor; torch: number[] }> = {
  relu: { of: (x) => x.relu(), torch: [1, nan, 0] },
  leakyRelu: { of: (x) => leakyRelu(x), torch: [1, nan, -0.01] },
  gelu: { of: (x) => gelu(x), torch: [0.8413, nan, -0.1587] },
  geluTanh: { of: (x) => gelu(x, 'tanh'), torch: [0.8412, nan, -0.1588] },
  silu: { of: (x) => silu(x), torch: [0.7311, nan, -0.2689] },
  sigmoid: { of: (x) => x.sigmoid(), torch: [0.7311, nan, 0.2689] },
  tanh: { of: (x) => x.tanh(), torch: [0.7616, nan, -0.7616] },
  softplus: { of: (x) => softplus(x), torch: [1.3133, nan, 0.3133] },
  erf: { of: (x) => x.erf(), torch: [0.8427, nan, -0.8427] },
  clamp: { of: (x) => x.clamp(-0.5, 0.5), torch: [0.5, nan, -0.5] },
  maximum: { of: (x) => maximum(x, 0), torch: [1, nan, 0] },
  minimum: { of: (x) => minimum(x, 0), torch: [0, nan, -1] },
  abs: { of: (x) => x.abs(), torch: [1, nan, 1] },
  exp: { of: (x) => x.mul(2).exp(), torch: [7.3891, nan, 0.1353] },
  sqrt: { of: (x) => x.sqrt(), torch: [1, nan, nan] },
  log: { of: (x) => x.log(), torch: [0, nan, nan] },
  sign: { of: (x) => x.sign(), torch: [1, 0, -1] },
  amax: { of: (x) => x.amax(), torch: [nan] },
  amin: { of: (x) => x.amin(), torch: [nan] },
  mean: { of: (x) => x.mean(), torch: [nan] },
  softmax: { of: (x) => x.softmax(0), torch: [nan, nan, nan] },
  logSoftmax: { of: (x) => x.logSoftmax(0), torch: [nan, nan, nan] },
  logsumexp: { of: (x) => logsumexp(x, 0), torch: [nan] },
  argmax: { of: (x) => argmax(x, 0), torch: [1] },
  topk: { of: (x) => topk(x, 2).values, torch: [nan, 1] },
  huber: { of: (x) => huberLoss(x, x.mul(0)), torch: [nan] },
  bce: { of: (x) => binaryCrossEntropyWithLogits(x, x.mul(0)), torch: [nan] },
  maxPool2d: { of: (x) => maxPool2d(x.reshape([1, 1, 1, 3]), [1, 3]), torch: [nan] },
  avgPool: { of: (x) => adaptiveAvgPool2d(x.reshape([1, 1, 1, 3]), 1), torch: [nan] },
}

const forward: TracedFunction = ({ x }) =>
  Object.fromEntries(Object.entries(expected).map(([name, { of }]) => [name, of(x)]))

test.each(['GPU', 'cpu'])('forward, on the %s', async (where) => {
  const runtime = where === 'cpu' ? new CpuRuntime() : await testRuntime()
  const program = await compile(forward, { x: tensorType([3]) }, { runtime })
  const outputs = await program.run({ x: Float32Array.of(1, nan, -1) })
  const rounded = (values: Iterable<number>) => Array.from(values, (v) => Math.round(v * 1e4) / 1e4)
  for (const [name, { torch }] of Object.entries(expected))
    expect.soft({ name, values: rounded(outputs[name]) }).toEqual({ name, values: torch })
  program.destroy()
})

test.each(['GPU', 'cpu'])('gradients of relu, on the %s', async (where) => {
  const runtime = where === 'cpu' ? new CpuRuntime() : await testRuntime()
  const weight = new Parameter([3], Float32Array.of(1, nan, -1))
  const optimizer = new SGD([weight], { lr: 0 })
  const program = await compile(
    () => {
      weight.relu().sum().backward()
      const gradient = weight.grad!
      optimizer.step()
      return { gradient }
    },
    {},
    { runtime },
  )
  expect([...(await program.run({})).gradient]).toEqual([1, 1, 0])
  program.destroy()
})
