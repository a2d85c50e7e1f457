import { expect, onTestFinished, test } from 'vitest'
import { parseTrainConfig } from '../../demos/experiments.ts'
import { task } from '../../demos/playground/demo.ts'
import { openWasm } from '../../src/gpu/wasm/open.ts'
import { ReferenceRuntime, Runtime } from '../../src/graph/memory/runtime.ts'
import { blockElements, encode } from '../../src/kernels/encode/encode.ts'
import type { HostArray } from '../../src/kernels/op.ts'
import { warmUp } from '../../src/trainer/loop/warm-up.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { tensorType } from '../../src/util/shape.ts'
import { runOp, testRuntime } from '../support/run-op.ts'
import { lossesOf, resultsOf, trainRanks } from '../support/train-ranks.ts'

test.each([
  [{}, [1, 2, 3]],
  [{ precision: 'float16', clipNorm: 0.1 }, [1, 3]],
] as const)('an exact run with %j ends with the same bits on %j ranks', async (own, sizes) => {
  const runtime = await testRuntime()
  const runs = []
  for (const size of sizes) {
    const settings = { demo: 'playground', model: 'tanh-8-8', data: 'xor', steps: 12 } as const
    const input = { ...settings, batchSize: 22, exact: true, virtualWorkers: 4, ...own }
    runs.push(await trainRanks(size, input, () => runtime, undefined, task as Task))
  }
  const [{ paramHash }] = resultsOf(runs[0])
  for (const ranks of runs) {
    for (const result of resultsOf(ranks)) expect(result.paramHash).toBe(paramHash)
    for (const rank of ranks) expect(lossesOf(rank)).toEqual(lossesOf(runs[0][0]))
  }
})

test.each(encode.variants)(
  'encode ($name) marks blocks whose gradients are not finite, and others that do not fit',
  async (variant) => {
    const gradient = new Float64Array(4 * blockElements).fill(1)
    gradient.set([Number.NaN], 3)
    gradient.set([2 ** 120, Number.NEGATIVE_INFINITY], blockElements + 9)
    gradient.set([2 ** 120], 2 * blockElements + 200)
    const words = [new Int32Array(gradient.length), new Int32Array(4), new Int32Array(4)]
    const [total, marks, exponents] = words
    const own: HostArray[] = [total, marks, gradient, exponents]
    const call = {
      inputs: own.map((array, i) => tensorType([array.length], i === 2 ? 'f32' : 'i32')),
      outputs: [],
      attrs: { first: { slot: 0 } },
    }
    const { updated } = await runOp(encode, variant, call, own, [1])
    encode.reference(own, call, [1])
    expect(updated.map((one) => new Int32Array(one.buffer, one.byteOffset, one.length))).toEqual([
      total,
      marks,
    ])
    expect([...marks]).toEqual([-(2 ** 25), -(2 ** 25), 2 ** 23 + 1, 2 ** 19 + 1])
  },
)

test('a rank on another device than the others is named: it computes other bits', async () => {
  const runtime = await testRuntime()
  // On a page a rank on the device cpu among ranks on WebGPU; in Node one on the device reference among ranks on cpu.
  const other =
    typeof document === 'undefined' ? new ReferenceRuntime() : new Runtime(await openWasm())
  const input = { demo: 'playground', data: 'xor', steps: 4, exact: true } as const
  const runtimeOf = (rank: number) => (rank === 1 ? other : runtime)
  const ranks = await trainRanks(3, input, runtimeOf, undefined, task as Task)
  expect(new Set(resultsOf(ranks).map(({ paramHash }) => paramHash)).size).toBe(1)
  const text = expect.stringMatching(
    /^on rank 1 \(.+\) the computed bits differ from those that the run/,
  )
  for (const [rank, { events }] of ranks.entries())
    expect(events.filter(({ event }) => event === 'unlike')).toEqual([
      { event: 'unlike', step: 0, ranks: [1], text, isLasting: true, rank },
    ])
})

test('a rank that has warmed up compiles no kernel when it joins, and frees all memory', async () => {
  // In Node the device of all specs may free what another spec has dropped while this one counts bytes.
  const isShared = typeof document === 'undefined'
  const runtime = isShared ? new Runtime(await openWasm()) : await testRuntime()
  onTestFinished(() => {
    if (isShared) runtime.gpu.close()
  })
  const { counters } = runtime.gpu
  // Rows that no other spec has: kernels of theirs may be in the device's cache.
  const sizes = { batchSize: 74, virtualWorkers: 2 }
  const settings = { demo: 'playground', data: 'xor', steps: 3, exact: true, ...sizes } as const
  const run = async (model: string) => {
    const input = { ...settings, model }
    resultsOf(await trainRanks(1, input, () => runtime, undefined, task as Task))
  }
  const compiled = async (work: () => Promise<unknown>) => {
    const before = counters.pipelines
    await work()
    return counters.pipelines - before
  }
  // What any run compiles at its end, such as the hash.
  await run('tanh-8-8')
  const config = parseTrainConfig({ ...settings, model: 'relu-32-32' })
  const phases: string[] = []
  const onPhase = (phase: string) => void phases.push(phase)
  const baseUrl = 'https://data.example/'
  const warm = () => warmUp({ config, task: task as Task, runtime, baseUrl, onPhase })
  const { usedBytes } = runtime.gpu
  let destroy: (() => void) | undefined
  const take = async () => {
    destroy = (await warm())?.setup?.destroy
  }
  expect(await compiled(take)).toBeGreaterThan(3)
  expect(phases).toEqual(['load', 'compile'])
  expect(await compiled(() => run('relu-32-32'))).toBe(0)
  expect(runtime.gpu.usedBytes).toBeGreaterThan(usedBytes)
  destroy?.()
  await expect.poll(() => runtime.gpu.usedBytes).toBe(usedBytes)
})
