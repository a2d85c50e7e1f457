import { packCheckpoint } from '../../src/ddp/checkpoint/checkpoint-file.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { mseLoss } from '../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { manualSeed } from '../../src/nn/init.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { StepLR } from '../../src/optim/lr-scheduler/decays.ts'
import { uniform } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { updateStep } from './update-step.ts'

// A run whose checkpoint PyTorch continues from: tests/golden/checkpoint.safetensors, .py and .json. Only sums, products, divisions and square
// roots, so that every machine makes the same bytes.

const rows = 8
const steps = 3

export const batch = (step: number) => ({
  x: { shape: [rows, 6], data: uniform(21, 2 * step, rows * 6, -1, 1) },
  y: { shape: [rows, 4], data: uniform(21, 2 * step + 1, rows * 4, -1, 1) },
})

export function goldenParts() {
  manualSeed(7)
  const model = new Sequential(
    new Linear(6, 5, { bias: false }),
    new BatchNorm1d(5),
    new ReLU(),
    new Linear(5, 4),
  )
  const [first, ...others] = model.parameters()
  const groups = [
    { params: [first], lr: 0.02 },
    { params: others, weightDecay: 0 },
  ]
  const optimizer = new AdamW(groups, { lr: 0.01, betas: [0.8, 0.95], weightDecay: 0.1 })
  const scheduler = new StepLR(optimizer, 2, { gamma: 0.5 })
  const parts = { model, optimizer, scheduler }
  /** Steps `from` up to before `to`; returns the last loss. */
  const train = async (from: number, to: number): Promise<number> => {
    const program = await compile(
      updateStep(optimizer, ({ x, y }) => mseLoss(model.forward(x), y)),
      { x: tensorType([rows, 6]), y: tensorType([rows, 4]) },
      { runtime: new ReferenceRuntime() },
    )
    let loss = Number.NaN
    for (let step = from; step < to; step++) {
      const { x, y } = batch(step)
      loss = (await program.run({ x: x.data, y: y.data })).loss[0]
      scheduler.step()
    }
    program.destroy()
    return loss
  }
  return { parts, train }
}

/** The file: three steps, and what the next one takes. */
export async function makeGoldenCheckpoint(): Promise<Uint8Array<ArrayBuffer>> {
  const { parts, train } = goldenParts()
  await train(0, steps)
  return packCheckpoint({ ...parts, step: steps, epoch: 1, bestAccuracy: 0.5, next: batch(steps) })
}
