import { compile, manualSeed, tensorType } from '../../src/entries/index.ts'
import { mseLoss } from '../../src/entries/nn/functional.ts'
import { DistributedDataParallel } from '../../src/entries/nn/parallel.ts'
import { Linear, ReLU, Sequential } from '../../src/entries/nn.ts'
import { SGD } from '../../src/entries/optim.ts'
import { updateStep } from './update-step.ts'

const width = 8

/** The rows of one step that are a rank's: consecutive ranks have consecutive samples. */
function rowsOf(step: number, rank: number, rows: number) {
  const numbers = (offset: number) =>
    Float32Array.from({ length: rows * width }, (_, i) => {
      const sample = rank * rows + Math.floor(i / width)
      return Math.sin(step + offset + sample * 1.7 + (i % width) * 0.37)
    })
  return { x: numbers(0), y: numbers(0.5) }
}

/** Trains a small model as a user's program does, on one rank alone or in a group, and returns what it reached. */
export async function trainHere(steps: number, rows: number, rank: number, isInGroup: boolean) {
  manualSeed(3)
  const net = new Sequential(new Linear(width, 16), new ReLU(), new Linear(16, width))
  const model = isInGroup ? new DistributedDataParallel(net, { bucketCapMb: 1 }) : net
  const optimizer = new SGD(net.parameters(), { lr: 0.1, momentum: 0.9 })
  const step = await compile(
    updateStep(optimizer, ({ x, y }) => mseLoss(model.forward(x), y)),
    { x: tensorType([rows, width]), y: tensorType([rows, width]) },
  )
  const losses: number[] = []
  for (let i = 0; i < steps; i++) {
    const { loss } = await step.run(rowsOf(i, rank, rows))
    losses.push(loss[0])
  }
  const state = await net.stateDict()
  const weights = Object.values(state).flatMap(({ data }) => [...data])
  return { losses, weights }
}
