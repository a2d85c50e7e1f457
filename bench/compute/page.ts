import { fillBatch } from '../../src/data/dataset.ts'
import { drawDigits } from '../../src/data/digits.ts'
import { messageOf } from '../../src/util/errors.ts'
import { RandomStream } from '../../src/util/random.ts'
import { median } from '../statistics.ts'
import { countCalls, type GpuCalls, perStep } from './calls.ts'
import { matmulElement, oracleLosses, worstDifference } from './oracle.ts'
import type { StepProfile } from './profile.ts'
import type { OurTrainer } from './tabring.ts'
import {
  type Batch,
  batchSize,
  flops,
  layers,
  type Matmul,
  type MatmulTask,
  matmulTasks,
  type Trainer,
  type Weights,
} from './task.ts'

/** The page in which all libraries run side by side; `bench/compute.ts` drives it from outside. */

/** Libraries by key; each is loaded when it is asked for. */
const trainers: Record<string, (weights: Weights) => Promise<Trainer>> = {
  tabring: async (weights) => (await import('./tabring.ts')).tabringTrainer(weights),
  jax: async (weights) => (await import('./jax.ts')).jaxTrainer(weights, 'webgpu'),
  jaxWasm: async (weights) => (await import('./jax.ts')).jaxTrainer(weights, 'wasm'),
  tfjs: async (weights) => (await import('./tfjs.ts')).tfjsTrainer(weights),
}
type MakeMatmul = (
  task: MatmulTask,
  a: Float32Array<ArrayBuffer>,
  b: Float32Array<ArrayBuffer>,
) => Promise<Matmul>
const matmuls: Record<string, MakeMatmul> = {
  tabring: async (...args) => (await import('./tabring.ts')).tabringMatmul(...args),
  jax: async (...args) => (await import('./jax.ts')).jaxMatmul(...args),
  tfjs: async (...args) => (await import('./tfjs.ts')).tfjsMatmul(...args),
}

const batchCount = 8
const checkedSteps = 5
/** Float32 against float64 over five steps; a wrong formula is off by far more. */
const lossTolerance = 2e-4
const matmulTolerance = 1e-4

/** How far a library's host may run ahead of its device. */
const runAheads = {
  'loss of each step awaited': { ahead: 1, isEveryLossRead: true },
  'every loss read, 3 steps under way': { ahead: 3, isEveryLossRead: true },
  'last loss of a block read': { ahead: Number.POSITIVE_INFINITY, isEveryLossRead: false },
} as const
type RunAhead = keyof typeof runAheads

interface Entry {
  trainer: Trainer
  runAhead: RunAhead
  stepsDone: number
}
const entries = new Map<string, Entry>()
let batches: Batch[] = []
let weights: Weights
let expected: number[] = []

async function prepare(): Promise<void> {
  if (batches.length > 0) return
  const digits = drawDigits(0, 0, batchCount * batchSize)
  batches = Array.from({ length: batchCount }, (_, batch) => {
    const pixels = new Float32Array(batchSize * layers.inputs)
    const labels = new Int32Array(batchSize)
    const indices = Array.from({ length: batchSize }, (_, row) => batch * batchSize + row)
    fillBatch(digits, indices, pixels, labels)
    const oneHot = new Float32Array(batchSize * layers.classes)
    labels.forEach((label, row) => {
      oneHot[row * layers.classes + label] = 1
    })
    return { pixels, labels, oneHot }
  })
  weights = await (await import('./tabring.ts')).initialWeights()
  expected = oracleLosses(weights, batches.slice(0, checkedSteps))
}

/** Takes `count` steps and returns milliseconds per step, the last step's weights included. */
async function block(entry: Entry, count: number, runAhead = entry.runAhead): Promise<number> {
  const { trainer } = entry
  const { ahead, isEveryLossRead } = runAheads[runAhead]
  const underWay: Promise<number>[] = []
  const began = performance.now()
  for (let step = 0; step < count; step++) {
    const wantsLoss = isEveryLossRead || step === count - 1
    underWay.push(trainer.step(batches[entry.stepsDone++ % batchCount], wantsLoss))
    while (underWay.length >= ahead) await underWay.shift()
  }
  const rest = await Promise.all(underWay)
  await trainer.settle()
  const ms = (performance.now() - began) / count
  const loss = rest.at(-1)
  if (loss !== undefined && !Number.isFinite(loss)) throw new Error(`the loss became ${loss}`)
  return ms
}

const entryOf = (key: string): Entry => {
  const entry = entries.get(key)
  if (!entry) throw new Error(`${key} is not loaded`)
  return entry
}

/** An entry for each key: numbers by round, or why there are none. */
type Rounds = Record<string, number[] | { error: string }>

/** Times each key once a round, each round beginning with another one. */
async function interleave(
  keys: readonly string[],
  rounds: number,
  time: (key: string) => Promise<number>,
): Promise<Rounds> {
  const results: Rounds = Object.fromEntries(keys.map((key) => [key, []]))
  for (let round = 0; round < rounds; round++) {
    for (let at = 0; at < keys.length; at++) {
      const key = keys[(round + at) % keys.length]
      const sofar = results[key]
      if (!Array.isArray(sofar)) continue
      try {
        sofar.push(await time(key))
      } catch (thrown) {
        results[key] = { error: messageOf(thrown) }
      }
    }
    bench.onRound(round + 1)
  }
  return results
}

const bench = {
  onRound: (_round: number): void => undefined,

  async open() {
    const { gpu } = await (await import('./tabring.ts')).openRuntime()
    return {
      facts: gpu.facts,
      isIsolated: crossOriginIsolated,
      cores: navigator.hardwareConcurrency,
    }
  },

  /** Loads a library, takes five steps from the common weights and holds the losses against the oracle. */
  async load(
    key: string,
  ): Promise<{ losses: number[]; expected: number[]; worst: number; firstStepMs: number }> {
    await prepare()
    const began = performance.now()
    const trainer = await trainers[key](weights)
    const losses: number[] = []
    let firstStepMs = 0
    for (const batch of batches.slice(0, checkedSteps)) {
      losses.push(await trainer.step(batch, true))
      firstStepMs ||= performance.now() - began
    }
    const worst = worstDifference(losses, expected)
    if (!(worst <= lossTolerance))
      throw new Error(`losses ${losses.join(', ')}; expected ${expected.join(', ')}`)
    entries.set(key, { trainer, runAhead: 'loss of each step awaited', stepsDone: checkedSteps })
    return { losses, expected, worst, firstStepMs }
  },

  /** Discards the first steps, then settles on the way of running ahead that suits the library best. */
  async calibrate(key: string): Promise<Record<RunAhead, number>> {
    const entry = entryOf(key)
    await block(entry, 10)
    const names = (Object.keys(runAheads) as RunAhead[]).filter(
      (name) => runAheads[name].isEveryLossRead || !entry.trainer.readsEveryLoss,
    )
    const ms = Object.fromEntries(names.map((name) => [name, [] as number[]]))
    for (let round = 0; round < 3; round++) {
      for (const name of names) ms[name].push(await block(entry, 6, name))
    }
    const medians = Object.fromEntries(names.map((name) => [name, median(ms[name])])) as Record<
      RunAhead,
      number
    >
    entry.runAhead = names.reduce((best, name) => (medians[name] < medians[best] ? name : best))
    return medians
  },

  runAheadOf: (key: string): RunAhead => entryOf(key).runAhead,

  mlpRounds: (keys: readonly string[], rounds: number, stepsPerBlock: number): Promise<Rounds> =>
    interleave(keys, rounds, (key) => block(entryOf(key), stepsPerBlock)),

  async steps(key: string, count: number): Promise<void> {
    await block(entryOf(key), count, 'loss of each step awaited')
  },

  /** WebGPU calls of one step, from the difference of a short and a long run. */
  async calls(key: string): Promise<GpuCalls> {
    const entry = entryOf(key)
    const run = (count: number) => () => block(entry, count, 'loss of each step awaited')
    return perStep(await countCalls(run(2)), await countCalls(run(12)), 10)
  },

  async profile(): Promise<StepProfile> {
    const { profileStep } = await import('./profile.ts')
    return profileStep(entryOf('tabring').trainer as OurTrainer, batches[0])
  },

  /** GFLOP/s by library and round for one product, each checked first. */
  async matmulRounds(index: number, rounds: number): Promise<{ rounds: Rounds; variant: string }> {
    const task = matmulTasks[index]
    const { m, k, n } = task
    const stream = new RandomStream(1, index)
    const draw = (count: number) =>
      Float32Array.from({ length: count }, () => stream.between(-1, 1))
    const a = draw(m * k)
    const b = draw(k * n)
    const made = new Map<string, Matmul>()
    const failures: Rounds = {}
    for (const key of Object.keys(matmuls)) {
      try {
        const one = await matmuls[key](task, a, b)
        checkProduct(task, a, b, await one.result())
        await one.run(2)
        made.set(key, one)
      } catch (thrown) {
        failures[key] = { error: messageOf(thrown) }
      }
    }
    // Long enough for the clock at some GFLOP/s, short enough for the slowest.
    const times = Math.min(100, Math.max(2, Math.ceil(2e8 / flops(task))))
    const timed = await interleave([...made.keys()], rounds, async (key) => {
      const began = performance.now()
      await made.get(key)!.run(times)
      return (flops(task) * times) / (performance.now() - began) / 1e6
    })
    const ours = made.get('tabring') as { variant?: string } | undefined
    for (const one of made.values()) one.dispose()
    return { rounds: { ...failures, ...timed }, variant: ours?.variant ?? '' }
  },
}

/** Holds a spread of elements against the oracle. */
function checkProduct(task: MatmulTask, a: Float32Array, b: Float32Array, got: Float32Array): void {
  const { m, n } = task
  if (got.length !== m * n) throw new Error(`expected ${m * n} elements, got ${got.length}`)
  for (let sample = 0; sample < 200; sample++) {
    const at = Math.floor((sample * (m * n - 1)) / 199)
    const row = Math.floor(at / n)
    const wanted = matmulElement(task, a, b, row, at % n)
    if (!(Math.abs(got[at] - wanted) <= matmulTolerance * (1 + Math.abs(wanted))))
      throw new Error(`element ${row}, ${at % n}: expected ${wanted}, got ${got[at]}`)
  }
}

export type BenchPage = typeof bench
declare global {
  interface Window {
    bench: BenchPage
  }
}
window.bench = bench
