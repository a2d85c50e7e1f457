import { afterEach, expect, test, vi } from 'vitest'
import { addGradients, layOut } from '../../../src/ddp/exact/layout.ts'
import { getNumThreads, setNumThreads } from '../../../src/gpu/num-threads.ts'
import { openWasm } from '../../../src/gpu/wasm/open.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import type { GpuProgram } from '../../../src/graph/run/program.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { setSwitches } from '../../../src/util/switches.ts'

const threadsBefore = getNumThreads()

afterEach(() => {
  vi.restoreAllMocks()
  setNumThreads(threadsBefore)
  setSwitches({ debug: 0, memoryCap: null })
})

const [rows, features, hidden, classes] = [8, 64, 256, 10]

/** A program that adds its gradients to sums of whole numbers. */
async function sumProgram(threads: number) {
  setNumThreads(threads)
  const runtime = new Runtime(await openWasm())
  manualSeed(3)
  const model = new Sequential(
    new Linear(features, hidden),
    new ReLU(),
    new Linear(hidden, classes),
  )
  const layout = layOut(model.parameters())
  layout.allocate(runtime.gpu)
  const program = await compile(
    ({ x, y }) => {
      const loss = crossEntropy(model.forward(x), y)
      loss.backward()
      addGradients(layout)
      return { loss }
    },
    { x: tensorType([rows, features]), y: tensorType([rows], 'i32') },
    { runtime },
  )
  const run = async (i: number) => {
    const x = uniform(i, 1, rows * features)
    const y = Int32Array.from({ length: rows }, (_, row) => (i + row) % classes)
    const { loss } = await program.run({ x, y }, { isFirstReplay: i === 0 ? 1 : 0 })
    return loss[0]
  }
  const sums = async () => [...((await layout.sums.read(0, undefined, 'i32')) as Int32Array)]
  const { gpu } = runtime
  const close = () => {
    program.destroy()
    layout.destroy()
    gpu.close()
  }
  return { program: program as unknown as GpuProgram, run, sums, gpu, close }
}

test.each([1, 2])(
  'runs that are begun in one task give what runs one after the other give, with %i threads',
  async (threads) => {
    const { program, run, sums, gpu, close } = await sumProgram(threads)
    try {
      const numbers = [...Array(6).keys()]
      const losses: number[] = []
      for (const i of numbers) losses.push(await run(i))
      const expected = await sums()
      expect(expected.some((sum) => sum !== 0)).toBe(true)
      // There is room for 1, then for 2 and 4, then for 8.
      for (const batches of [3, 2, 1]) {
        gpu.counters.dispatches = 0
        expect(await Promise.all(numbers.map(run))).toEqual(losses)
        expect(await sums()).toEqual(expected)
        expect(gpu.counters.dispatches).toBe(batches * program.dispatchCount)
      }
    } finally {
      close()
    }
  },
)

test('runs together copy a weight once, and encode a gradient piece by piece behind the product that makes it', async () => {
  const { program, close } = await sumProgram(1)
  const { dispatches, together } = program.prepared.plan
  close()
  const named = dispatches.map(({ dispatch: { label } }, i) => ({ label, ...together![i] }))
  const once = named.filter(({ isOnce }) => isOnce).map(({ label }) => label)
  expect(once).toEqual([
    `matmul nt ${rows}x${features}x${hidden} add-relu panels of b`,
    `matmul nt ${rows}x${hidden}x${classes} add panels of b`,
  ])
  const first = named.findIndex(({ piece }) => piece !== undefined)
  expect(named[first].label).toMatch(`tn ${hidden}x${rows}x${features} sums vectors`)
  expect(named[first + 1].label).toBe('encode')
  const [, blocks] = named[first].piece!
  expect((hidden * features) / (256 * blocks)).toBeGreaterThanOrEqual(8)
})

test('runs reject with the limit, and later ones give the same, when there is no memory for what they need together', async () => {
  const { run, gpu, close } = await sumProgram(1)
  try {
    const loss = await run(0)
    setSwitches({ memoryCap: gpu.usedBytes })
    const ended = await Promise.allSettled([run(0), run(1), run(2)])
    for (const one of ended) expect(one).toMatchObject({ reason: { code: 'gpu.limit' } })
    setSwitches({ memoryCap: null })
    expect(await run(0)).toBe(loss)
  } finally {
    close()
  }
})

test('a program asks for memory to compute more runs together once when there is none', async () => {
  const { run, gpu, close } = await sumProgram(1)
  try {
    const loss = await run(0)
    // For outputs alone.
    setSwitches({ memoryCap: gpu.usedBytes + 64 })
    const create = vi.spyOn(gpu, 'createBuffer')
    expect(await Promise.all([run(0), run(0), run(0)])).toEqual([loss, loss, loss])
    expect(create.mock.calls.filter(([label]) => label.startsWith('input'))).toHaveLength(1)
  } finally {
    close()
  }
})

test.each([2, 5])(
  'a program of sums gives the same when debug is %i, which finds nothing wrong',
  async (debug) => {
    vi.spyOn(console, 'info').mockReturnValue()
    const warn = vi.spyOn(console, 'warn').mockReturnValue()
    const results: unknown[] = []
    for (const level of [0, debug]) {
      setSwitches({ debug: level })
      const { run, sums, close } = await sumProgram(1)
      try {
        results.push([await run(0), await run(1), await sums()])
      } finally {
        close()
      }
    }
    expect(results[1]).toEqual(results[0])
    expect(warn).not.toHaveBeenCalled()
  },
)
