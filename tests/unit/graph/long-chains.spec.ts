import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import type { Runtime } from '../../../src/graph/memory/runtime.ts'
import type { Prepared } from '../../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { testRuntime } from '../../support/run-op.ts'

const runtime = (await testRuntime()) as Runtime

test('a chain of many ops is cut into kernels of a size that compiles, to the same bits', async () => {
  const fn = ({ x }: { x: Tensor }) => {
    let [y, mean] = [x, x.mean()]
    for (let i = 0; i < 40; i++) {
      y = y.mul(1.001).add(0.001).tanh()
      mean = mean.mul(1.001).add(0.001).tanh()
    }
    return { y, mean }
  }
  const types = { x: tensorType([1000]) }
  const data = { x: Float32Array.from({ length: 1000 }, (_, i) => i / 1000 - 0.5) }
  const [joined, naive] = [
    await compile(fn, types, { runtime }),
    await compile(fn, types, { runtime, useNaiveKernels: true }),
  ]
  const { dispatches } = (joined.prepared as Prepared).plan
  expect(dispatches.length).toBeGreaterThan(7)
  expect(dispatches.length).toBeLessThan(12)
  const longest = Math.max(...dispatches.map(({ dispatch }) => dispatch.wgsl.length))
  expect(longest).toBeLessThan(40_000)
  const [own, other] = [await joined.run(data), await naive.run(data)]
  expect(own.y).toEqual(other.y)
  // Of a sum, which naive kernels add in another order.
  expect(own.mean[0]).toBeCloseTo(other.mean[0], 6)
  joined.destroy()
  naive.destroy()
})

test('an error of a long shader quotes the lines about the fault alone', async () => {
  const lines = Array.from({ length: 5000 }, (_, i) => `const c${i} = ${i}; // ${'.'.repeat(500)}`)
  const wgsl = [...lines, 'fn main() { let x = ; }', ...lines].join('\n')
  const error = await runtime.pipelines
    .get({ label: 'm'.repeat(5000), wgsl, bindings: [] })
    .catch((thrown: Error) => thrown)
  expect(error).toMatchObject({ code: 'gpu.compile' })
  const { message } = error as Error
  expect(message).toContain('\n5001 | fn main() { let x = ; }\n')
  expect(message.split('\n').length).toBeLessThan(12)
  expect(message.length).toBeLessThan(4000)
})
