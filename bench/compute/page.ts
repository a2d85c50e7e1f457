import type { Rounds } from '../../src/measure/interleave.ts'
import type { MakeProduct } from '../../src/measure/product.ts'
import type { Module } from '../../src/nn/module.ts'
import { median } from '../statistics.ts'
import { countCalls, type GpuCalls, perStep } from './calls.ts'
import { batchOf, expectedLosses, weightsOf } from './given.ts'
import { layouts } from './layouts.ts'
import { worstDifference } from './oracle.ts'
import type { StepProfile } from './profile.ts'
import type { OurTrainer } from './tabring.ts'
import {
  type Batch,
  gptConfig,
  type Library,
  matmulTasks,
  type StepName,
  type Trainer,
  type Weights,
} from './task.ts'

/** The page in which all libraries run side by side; `bench/compute.ts` drives it from outside. */

/** Our models, each with the code of its layers alone, as in a program that trains it. */
const models: Readonly<Record<StepName, () => Promise<Module>>> = {
  mlp: async () => (await import('../../src/nn/mlp.ts')).mlp(),
  cnn: async () => (await import('../../src/nn/cnn.ts')).cnn(),
  gpt: async () => (await import('../../src/nn/gpt.ts')).gpt(gptConfig),
}

async function ownTrainer(
  step: StepName,
  weights: Weights,
  device: 'webgpu' | 'cpu',
): Promise<Trainer> {
  const [{ tabringTrainer }, model] = await Promise.all([import('./tabring.ts'), models[step]()])
  return tabringTrainer(step, model, weights, device)
}

/** Libraries by key; each is loaded when it is asked for. */
const trainers: Record<Library, (step: StepName, weights: Weights) => Promise<Trainer>> = {
  tabring: (...args) => ownTrainer(...args, 'webgpu'),
  tabringCpu: (...args) => ownTrainer(...args, 'cpu'),
  jax: async (...args) => (await import('./jax.ts')).jaxTrainer(...args, 'webgpu'),
  jaxWasm: async (...args) => (await import('./jax.ts')).jaxTrainer(...args, 'wasm'),
  tfjs: async (...args) => (await import('./tfjs.ts')).tfjsTrainer(...args),
}

const batchCount = 8
/** Beside those that are checked. */
const discardedSteps = 5
/** Float32 against float64 over five steps; a wrong formula is off by far more. */
const lossTolerance = 2e-4

/** How far a library's host may run ahead of its device. */
const runAheads = {
  'loss of each step awaited': { ahead: 1, isEveryLossRead: true },
  'every loss read, 3 steps in flight': { ahead: 3, isEveryLossRead: true },
  'last loss of a block read': { ahead: Number.POSITIVE_INFINITY, isEveryLossRead: false },
} as const
type RunAhead = keyof typeof runAheads

/** Step time above which a library is timed by single steps, in a few rounds: more minutes would add no information. */
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

/** Length of one timing of products: reading the result alone takes up to 2.5 ms on a software adapter. */
const minMs = 50

const bench = {
  onRound: (_round: number): void => undefined,

  async open() {
    const { gpu } = await (await import('./tabring.ts')).openRuntime()
    return {
      facts: gpu.facts,
      isIsolated: crossOriginIsolated,
    }
  },

  /** Chooses the step, and makes its weights and batches; models of another step are let go. */
  prepare,

  /** Loads a library, takes the first steps from the common weights and holds the losses against PyTorch's. */
  async load(
    step: StepName,
    key: Library,
  ): Promise<{ losses: number[]; worst: number; isSlow: boolean }> {
    const trainer = await trainers[key](step, layouts[key][step](weights))
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
  async firstStep(step: StepName, key: Library): Promise<number> {
    prepare(step)
    const given = layouts[key][step](weights)
    const began = performance.now()
    const trainer = await trainers[key](step, given)
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

  async stepRounds(
    keys: readonly string[],
    rounds: number,
    stepsPerBlock: number,
  ): Promise<Rounds> {
    const { interleave } = await import('../../src/measure/interleave.ts')
    const time = (key: string) => block(entryOf(key), entryOf(key).isSlow ? 1 : stepsPerBlock)
    return interleave(keys, rounds, time, {
      takesPart: (key, round) => round < slowRounds || !entryOf(key).isSlow,
      onRound: (round) => bench.onRound(round),
    })
  },

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
    // Here, so that what a first step needs of them loads within its time.
    const [{ RandomStream }, { compareProducts }, { ownProduct }, { peers }, { openRuntime }] =
      await Promise.all([
        import('../../src/util/random.ts'),
        import('../../src/measure/compare-products.ts'),
        import('../../src/measure/own-product.ts'),
        import('../../src/measure/peers/peers.ts'),
        import('./tabring.ts'),
      ])
    const task = matmulTasks[index]
    const { m, k, n } = task
    const stream = new RandomStream(1, index)
    const draw = (count: number) =>
      Float32Array.from({ length: count }, () => stream.between(-1, 1))
    const a = draw(m * k)
    const b = draw(k * n)
    let variant = ''
    const own: MakeProduct = async (...given) => {
      const product = await ownProduct(await openRuntime(), ...given)
      variant = product.variant
      return product
    }
    const makers = { tabring: own, jax: peers.jax.make, tfjs: peers.tfjs.make }
    const onRound = (round: number) => bench.onRound(round)
    const timed = await compareProducts(makers, task, a, b, { rounds, minMs, onRound })
    return { rounds: timed, variant }
  },
}

export type BenchPage = typeof bench
declare global {
  interface Window {
    bench: BenchPage
  }
}
window.bench = bench
