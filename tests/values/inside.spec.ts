import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { matmul } from '../../src/graph/functions/matmul.ts'
import { mean } from '../../src/graph/functions/reductions.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import { matmul as matmulOp } from '../../src/kernels/matmul/matmul.ts'
import { tensorType } from '../../src/util/shape.ts'
import { exportTrace, traceEvents } from '../../src/util/spans.ts'
import { setSwitches } from '../../src/util/switches.ts'
import { testRuntime } from '../support/run-op.ts'

// The look-inside switches over real programs: what each logs, and that a program without them is the plain one.

const { gpu } = await testRuntime()
const types = { a: tensorType([12, 20]), b: tensorType([20, 16]) }
const inputs = {
  a: Float32Array.from({ length: 240 }, (_, i) => Math.sin(i)),
  b: Float32Array.from({ length: 320 }, (_, i) => Math.cos(i)),
}
const step: TracedFunction = ({ a, b }) => ({ y: mean(matmul(a, b)) })

let received: string[]
beforeEach(() => {
  received = []
  for (const level of ['info', 'warn'] as const)
    vi.spyOn(console, level).mockImplementation((text) => received.push(String(text)))
})
afterEach(() => {
  vi.restoreAllMocks()
  setSwitches({ debug: 0, naive: false, variant: '', trace: false })
})

/** A program on a runtime whose pipelines nobody has compiled. */
const make = () => compile(step, types, { runtime: new Runtime(gpu) })

test('off, a run is one submit, nothing is made and nothing is logged', async () => {
  const program = await make()
  await program.run(inputs)
  const { buffers, submits } = gpu.counters
  await program.run(inputs)
  expect(gpu.counters).toMatchObject({ buffers, submits: submits + 1 })
  expect(received).toEqual([])
})

test('debug=5 logs plan, shaders, times and values, and the result is the same', async () => {
  const plain = await (await make()).run(inputs)
  setSwitches({ debug: 5 })
  const program = await make()
  const { y } = await program.run(inputs)
  expect(y).toEqual(plain.y)
  const all = received.join('\n')
  expect(all).toMatch(/tabring plan: \d ops, \d dispatches; intermediates \d+ bytes at the peak/)
  expect(all).toMatch(
    /matmul\(f32\[12, 20\], f32\[20, 16\]\) (direct|vectors)-\dx\d \(fixed table\)\n {4}0 /,
  )
  expect(all).toMatch(/tabring shader "matmul.*": \n@group\(0\) @binding\(0\) var<storage, read>/)
  expect(all).toMatch(/values: run 1: \d ops checked against their references, 0 wrong results/)
  const row =
    /^ *([\d.]+) +[\d.]+ +[\d.]+ {2}matmul (?:direct|vectors)-\S+ {2}f32\[12, 20\], f32\[20, 16\]$/m.exec(
      all,
    )
  expect(Number(row?.[1]), all).toBeGreaterThan(0)
})

test('debug=5 names an op whose values are not those of its reference, or not numbers', async () => {
  setSwitches({ debug: 5 })
  const program = await make()
  vi.spyOn(matmulOp, 'reference').mockReturnValue([new Float64Array(192).fill(1e3)])
  await program.run({ ...inputs, a: inputs.a.with(3, Number.NaN) })
  const wrong = received.filter((text) => text.includes(', output 0: '))
  expect(wrong[0]).toMatch(
    /op 1 of \d, matmul\(f32\[12, 20\].*\[0\] is NaN, the reference has 1000; 192 of 192/,
  )
})

test('variant= forces a kernel where it can run, naive= the first of each, and a wrong name is refused', async () => {
  setSwitches({ variant: 'matmul:direct-8x4' })
  expect(Object.values((await make()).prepared.chosen)).toContain('direct-8x4')
  setSwitches({ variant: '', naive: true })
  expect(new Set(Object.values((await make()).prepared.chosen))).toEqual(new Set(['naive']))
  setSwitches({ variant: 'matmul:fastest' })
  await expect(make()).rejects.toThrow('variant of matmul must be naive, ')
})

test('trace= gives steps and kernels to Perfetto and to the performance panel', async () => {
  const measure = vi.spyOn(performance, 'measure')
  setSwitches({ trace: true })
  const before = traceEvents().length
  const program = await make()
  await program.run(inputs)
  const exported = JSON.parse(exportTrace(traceEvents().slice(before))).traceEvents
  const spans = exported.filter(({ ph }: { ph: string }) => ph === 'X')
  const run = spans.find(({ name }: { name: string }) => / run 1$/.test(name))
  const product = spans.find(({ name }: { name: string }) => name === 'matmul')
  expect(product.args).toMatchObject({ dims: 'f32[12, 20], f32[20, 16]', flops: 2 * 12 * 20 * 16 })
  // In microseconds; a kernel ends when its run does, or before.
  expect(product.ts + product.dur).toBeLessThanOrEqual(run.ts + run.dur + 1)
  expect(measure).toHaveBeenCalledTimes(spans.length)
})
