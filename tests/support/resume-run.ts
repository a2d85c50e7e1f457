import { expect } from 'vitest'
import { TensorDataset } from '../../src/data/datasets.ts'
import { DataLoader } from '../../src/data/loader/data-loader.ts'
import { DistributedSampler } from '../../src/data/sampler.ts'
import { packCheckpoint, unpackCheckpoint } from '../../src/ddp/checkpoint/checkpoint-file.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { dropout } from '../../src/graph/functions/dropout.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { Dropout } from '../../src/nn/dropout.ts'
import { getRngState, manualSeed } from '../../src/nn/init.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { StepLR } from '../../src/optim/lr-scheduler/decays.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { uniform } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { updateStep } from './update-step.ts'

const rows = 16
const features = 12
const samples = 5 * rows
const dataset = new TensorDataset({
  x: { shape: [samples, features], data: uniform(1, 0, samples * features, -1, 1) },
  y: { shape: [samples], data: Int32Array.from(uniform(1, 1, samples, 0, 4), Math.floor) },
})

/** Everything that a training script makes. */
export async function makeRun(runtime: AnyRuntime, optimizerName: 'adamw' | 'sgd', numWorkers = 0) {
  const model = new Sequential(
    new Linear(features, 24),
    new BatchNorm1d(24),
    new ReLU(),
    new Dropout(0.2),
    new Linear(24, 4),
  )
  const optimizer =
    optimizerName === 'adamw'
      ? new AdamW(model.parameters(), { lr: 1e-2 })
      : new SGD(model.parameters(), { lr: 1e-2, momentum: 0.9, dampening: 0.1 })
  const scheduler = new StepLR(optimizer, 3, { gamma: 0.5 })
  const sampler = new DistributedSampler({ length: samples }, { numReplicas: 1, rank: 0, seed: 4 })
  const loader = new DataLoader(dataset, { batchSize: rows, sampler, numWorkers })
  const parts = { model, optimizer, scheduler, loader }
  /** Trains from where the loader stands up to step `to`, and saves; `compile` comes late, so that a checkpoint may be loaded before. */
  const train = async (from: number, to: number) => {
    const program = await compile(
      updateStep(optimizer, ({ x, y }) => crossEntropy(dropout(model.forward(x), 0.25), y)),
      { x: tensorType([rows, features]), y: tensorType([rows], 'i32') },
      { runtime },
    )
    const losses: number[] = []
    let step = from
    for (let epoch = loader.epoch; ; epoch++) {
      sampler.setEpoch(epoch)
      for await (const batch of loader) {
        losses.push((await program.run(batch)).loss[0])
        scheduler.step()
        if (++step < to) continue
        const file = await packCheckpoint({ ...parts, step, note: 'under way' })
        program.destroy()
        loader.close()
        return { losses, file }
      }
    }
  }
  return { parts, train }
}

const bitsOf = async (model: Sequential) =>
  Object.entries(await model.stateDict()).map(
    ([key, { data }]) => `${key} ${new Uint32Array(data.buffer).join()}`,
  )

/**
 * Trains 10 steps at once, and 7 steps, through a file in the middle of an epoch, on another runtime, and 3 more: both must end with the
 * same bits.
 */
export async function checkResume(
  name: 'adamw' | 'sgd',
  openRuntime: () => Promise<AnyRuntime>,
  numWorkers = 0,
): Promise<void> {
  const runtime = await openRuntime()
  manualSeed(11)
  const whole = await makeRun(runtime, name)
  const { losses } = await whole.train(0, 10)

  manualSeed(11)
  const first = await makeRun(runtime, name, numWorkers)
  const { losses: firstLosses, file } = await first.train(0, 7)
  const random = getRngState()

  manualSeed(99)
  const second = await makeRun(await openRuntime(), name, numWorkers)
  const { step, note } = await unpackCheckpoint<{ step: number; note: string }>(file, second.parts)
  expect({ step, note, random: getRngState() }).toEqual({ step: 7, note: 'under way', random })
  expect(second.parts.loader.stateDict()).toMatchObject({ epoch: 1, batches: 2 })
  const { losses: secondLosses } = await second.train(step, 10)
  expect([...firstLosses, ...secondLosses]).toEqual(losses)
  expect(await bitsOf(second.parts.model)).toEqual(await bitsOf(whole.parts.model))
  expect(second.parts.optimizer.paramGroups[0].lr).toBe(whole.parts.optimizer.paramGroups[0].lr)
}
