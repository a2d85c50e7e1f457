import { expect } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { gpu } from '../../src/graph/compile/gpu.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import { runtimeOf } from '../../src/graph/memory/default-runtime.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import { SplitProgram } from '../../src/graph/run/split-program.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { Module } from '../../src/nn/module.ts'
import { pipeline } from '../../src/parallel/pipeline/pipe.ts'
import type { Schedule, ScheduleGPipe } from '../../src/parallel/pipeline/schedule.ts'
import {
  batchOf,
  type GoldenRun,
  goldenModel,
  goldenOptimizer,
  stepTypes,
} from './formula-model.ts'
import { parameterBits } from './trajectory-tests.ts'

// Runs of the golden models over several devices of one adapter.

/** Opens the page's adapter as `count` devices; before anything else in the page opens one. */
export async function openDevices(count: number): Promise<Runtime[]> {
  gpu.logicalDevices(count)
  const runtimes = await Promise.all(Array.from({ length: count }, (_, index) => runtimeOf(index)))
  return runtimes.filter((runtime) => runtime instanceof Runtime)
}

/** The loss of a batch, whose backward has run. */
export type LossOf = (x: Tensor, y: Tensor) => Tensor

/** Loss and backward of a model as it stands. */
export const plainLoss =
  (model: Module): LossOf =>
  (x, y) => {
    const loss = crossEntropy(model.forward(x), y)
    loss.backward()
    return loss
  }

export interface SplitRun {
  readonly losses: number[]
  readonly bits: Record<string, string>
  /** Bytes that each device sends per step, and those of its plan. */
  readonly sentBytes: number[]
  readonly peakBytes: number[]
}

const counted = ['buffers', 'bindGroups', 'pipelines'] as const

/** Trains the golden model as `split` places it; a step after the second may create nothing. */
export async function trainSplit(
  run: GoldenRun,
  split: (model: Module) => Promise<LossOf>,
  devices: readonly Runtime[],
  steps = run.steps,
  /** Gets the marks of each step. */
  watched?: { name: string; atMs: number }[][],
): Promise<SplitRun> {
  const model = goldenModel(run)
  const lossOf = await split(model)
  const optimizer = goldenOptimizer(run, model)
  const step: TracedFunction = ({ x, y }) => {
    optimizer.zeroGrad()
    const loss = lossOf(x, y)
    optimizer.step()
    return { loss }
  }
  const program = await compile(step, stepTypes(run.model, run.batchSize))
  const losses: number[] = []
  const countsNow = () =>
    devices.map(({ gpu: { counters } }) => counted.map((name) => counters[name]))
  let before = countsNow()
  for (let i = 0; i < steps; i++) {
    if (i === 2) before = countsNow()
    if (watched) {
      const marks: { name: string; atMs: number }[] = []
      watched.push(marks)
      program.onMark = (name, atMs) => marks.push({ name, atMs })
    }
    losses.push((await program.run(batchOf(i * run.batchSize, run.batchSize))).loss[0])
  }
  expect(countsNow()).toEqual(before)
  const parts = program instanceof SplitProgram ? program.parts : []
  const bits = await parameterBits(model)
  program.destroy()
  return {
    losses,
    bits,
    sentBytes: parts.map(({ sentBytes }) => sentBytes),
    peakBytes: parts.map(({ program: { memory } }) => memory.peakBytes),
  }
}

type AnySchedule = new (...given: ConstructorParameters<typeof ScheduleGPipe>) => Schedule

/** Trains by a schedule of four micro-batches. */
export const pipelined =
  (Kind: AnySchedule, stages: number, deviceCount: number, overlapsSends = true) =>
  async (model: Module): Promise<LossOf> => {
    const pipe = await pipeline(model, {
      stages,
      balance: 'layers',
      devices: Array.from({ length: deviceCount }, (_, i) => i),
    })
    const schedule = new Kind(pipe, { microBatches: 4, lossFn: crossEntropy, overlapsSends })
    return (x, y) => schedule.step(x, y).loss
  }
