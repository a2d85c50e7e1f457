import { messageOf } from '../../src/util/errors.ts'
import { RandomStream } from '../../src/util/random.ts'
import { median } from '../statistics.ts'
import { countCalls, type GpuCalls, perStep } from './calls.ts'
import { batchOf, expectedLosses, weightsOf } from './given.ts'
import { matmulElement, worstDifference } from './oracle.ts'
import type { StepProfile } from './profile.ts'
import type { OurTrainer } from './tabring.ts'
import {
  type Batch,
  flops,
  type Matmul,
  type MatmulTask,
  matmulTasks,
  type StepName,
  type Trainer,
  type Weights,
} from './task.ts'

/** The page in which all libraries run side by side; `bench/compute.ts` drives it from outside. */

/** Libraries by key; each is loaded when it is asked for. */
const trainers: Record<string, (step: StepName, weights: Weights) => Promise<Trainer>> = {
  tabring: async (...args) => (await import('./tabring.ts')).tabringTrainer(...args),
  jax: async (...args) => (await import('./jax.ts')).jaxTrainer(...args, 'webgpu'),
  jaxWasm: async (...args) => (await import('./jax.ts')).jaxTrainer(...args, 'wasm'),
  tfjs: async (...args) => (await import('./tfjs.ts')).tfjsTrainer(...args),
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
/** Beside those that are checked. */
const discardedSteps = 5
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

/** A library whose step takes longer is timed by single steps, in a few rounds: minutes more would tell nothing. */
const slowStepMs = 2000
const slowRounds = 3

interface Entry {
  trainer: Trainer
  runAhead: RunAhead
  isSlow: boolean
  stepsDone: number
}
const entries = new Map<string, Entry>()
let batches: Batch[] = []
let weights: Weights
let expected: readonly number[] = []

function prepare(step: StepName): void {
  entries.clear()
  batches = Array.from({ length: batchCount }, (_, index) => batchOf(step, index))
  weights = weightsOf(step)
  expected = expectedLosses(step)
}

const isNear = (losses: readonly number[]): boolean =>
  worstDifference(losses, expected) <= lossTolerance

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

/** Times each key once a round, each round beginning with another one; `isSlow` ones in the first rounds only. */
async function interleave(
  keys: readonly string[],
  rounds: number,
  time: (key: string) => Promise<number>,
  isSlow: (key: string) => boolean = () => false,
): Promise<Rounds> {
  const results: Rounds = Object.fromEntries(keys.map((key) => [key, []]))
  for (let round = 0; round < rounds; round++) {
    for (let at = 0; at < keys.length; at++) {
      const key = keys[(round + at) % keys.length]
      const sofar = results[key]
      if (!Array.isArray(sofar) || (round >= slowRounds && isSlow(key))) continue
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

  /** Chooses the step, and makes its weights and batches; models of another step are let go. */
  prepare,

  /** Loads a library, takes the first steps from the common weights and holds the losses against PyTorch's. */
  async load(
    step: StepName,
    key: string,
  ): Promise<{ losses: number[]; worst: number; isSlow: boolean }> {
    const trainer = await trainers[key](step, weights)
    const losses: number[] = []
    let began = 0
    for (const batch of batches.slice(0, expected.length)) {
      losses.push(await trainer.step(batch, true))
      began ||= performance.now()
    }
    if (!isNear(losses))
      throw new Error(`losses ${losses.join(', ')}; expected ${expected.join(', ')}`)
    const isSlow = (performance.now() - began) / (expected.length - 1) > slowStepMs
    entries.set(key, {
      trainer,
      runAhead: 'loss of each step awaited',
      isSlow,
      stepsDone: expected.length,
    })
    return { losses, worst: worstDifference(losses, expected), isSlow }
  },

  /** Milliseconds from loading the library's code to the first loss on the host; for a page in which nothing has run. */
  async firstStep(step: StepName, key: string): Promise<number> {
    prepare(step)
    const began = performance.now()
    const trainer = await trainers[key](step, weights)
    const loss = await trainer.step(batches[0], true)
    const ms = performance.now() - began
    if (!isNear([loss])) throw new Error(`first loss ${loss}; expected ${expected[0]}`)
    return ms
  },

  /** Discards the first steps, then settles on the way of running ahead that suits the library best. */
  async calibrate(key: string, blockSteps: number): Promise<Partial<Record<RunAhead, number>>> {
    const entry = entryOf(key)
    if (entry.isSlow) return {}
    await block(entry, discardedSteps)
    const names = (Object.keys(runAheads) as RunAhead[]).filter(
      (name) => runAheads[name].isEveryLossRead || !entry.trainer.readsEveryLoss,
    )
    const ms = Object.fromEntries(names.map((name) => [name, [] as number[]]))
    for (let round = 0; round < 3; round++) {
      for (const name of names) ms[name].push(await block(entry, blockSteps, name))
    }
    const medians = Object.fromEntries(names.map((name) => [name, median(ms[name])])) as Record<
      RunAhead,
      number
    >
    entry.runAhead = names.reduce((best, name) => (medians[name] < medians[best] ? name : best))
    return medians
  },

  runAheadOf: (key: string): RunAhead => entryOf(key).runAhead,

  stepRounds: (keys: readonly string[], rounds: number, stepsPerBlock: number): Promise<Rounds> =>
    interleave(
      keys,
      rounds,
      (key) => block(entryOf(key), entryOf(key).isSlow ? 1 : stepsPerBlock),
      (key) => entryOf(key).isSlow,
    ),

  async steps(key: string, count: number): Promise<void> {
    await block(entryOf(key), count, 'loss of each step awaited')
  },

  /** WebGPU calls of one step, from the difference of a short and a long run. */
  async calls(key: string, steps: number): Promise<GpuCalls> {
    const entry = entryOf(key)
    const run = (count: number) => () => block(entry, count, 'loss of each step awaited')
    return perStep(await countCalls(run(1)), await countCalls(run(1 + steps)), steps)
  },

  async profile(): Promise<StepProfile> {
    const { profileStep } = await import('./profile.ts')
    return profileStep(entryOf('tabring').trainer as OurTrainer, batches[0])
  },

  dispatchesPerLayer: async () => (await import('./tabring.ts')).dispatchesPerLayer(),

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
        await one.run(1)
        made.set(key, one)
      } catch (thrown) {
        failures[key] = { error: messageOf(thrown) }
      }
    }
    // Long enough for the clock at some GFLOP/s, short enough for the slowest.
    const times = Math.min(100, Math.max(1, Math.ceil(2e8 / flops(task))))
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
