import { expect, test } from 'vitest'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import { timeLowering } from '../../src/graph/tune/time-lowering.ts'
import { openTuneStore } from '../../src/graph/tune/tune-store.ts'
import { variantKey } from '../../src/kernels/choose.ts'
import { matmul, plain } from '../../src/kernels/matmul/matmul.ts'
import type { Op, OpCall } from '../../src/kernels/op.ts'
import { tune } from '../../src/kernels/tune.ts'
import { tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

test('the tuner picks a variant on this adapter and remembers it', async () => {
  const runtime = new Runtime((await testRuntime()).gpu)
  const inputs = [tensorType([20, 24]), tensorType([24, 12])]
  const attrs = plain('nn')
  const call = { inputs, outputs: matmul.infer(inputs, attrs), attrs }
  const store = openTuneStore()
  const environment = `test ${Math.random()}`
  const options = {
    targets: [{ op: matmul as Op, call: call as OpCall }],
    limits: runtime.limits,
    store,
    environment,
  }
  const table = await tune({
    ...options,
    time: (lowering, target) => timeLowering(runtime, lowering, target.call),
  })
  const key = variantKey(matmul, call)
  expect(matmul.variants.map(({ name }) => name)).toContain(table[key])

  const again = await tune({
    ...options,
    time: () => Promise.reject(new Error('timed although it was known')),
  })
  expect(again).toEqual(table)
})
