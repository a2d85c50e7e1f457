import {
  layersOf,
  layerTimes,
  type PipelineOptions,
  pipeline,
  ScheduleGPipe,
} from '../../src/entries/distributed/split.ts'
import { compile, gpu, manualSeed, type Tensor, tensorType } from '../../src/entries/index.ts'
import { crossEntropy } from '../../src/entries/nn/functional.ts'
import { cnn, type Module, resnet50 } from '../../src/entries/nn.ts'
import { SGD } from '../../src/entries/optim.ts'
import { SplitProgram } from '../../src/graph/run/split-program.ts'
import { type Split, type SplitFacts, type SplitTask, sizeOf } from './task.ts'
import { tasksOf, tasksOfWhole } from './tasks.ts'

/** The page that `bench/split.ts` drives. */

const models = {
  cnn: { make: () => cnn(), sample: [1, 28, 28], classes: 10, cut: undefined },
  // The tutorial's cut: layer3 and what follows are on the second device.
  resnet50: { make: () => resnet50(), sample: [3, 128, 128], classes: 1000, cut: ['layer3'] },
} as const

declare global {
  interface Window {
    benchSplit: {
      /** Returns the device's name. */
      open(task: SplitTask): Promise<string>
      /** What the layers of each stage take of a step on one device. Adds up to 1. */
      stageShares(): Promise<number[]>
      prepare(split: Split): Promise<SplitFacts>
      /** Runs a prepared step once. Returns ms. */
      run(split: Split): Promise<number>
    }
  }
}

let task: SplitTask

/** Cut as the tutorial does, or by parameters. */
function whereToCut(): PipelineOptions {
  const { cut } = models[task.model]
  return cut && task.stages === 2 ? { splitSpec: cut } : { stages: task.stages }
}

/** Samples with which layers are timed: fewer, so that ResNet-50 takes no more than a step. */
const maxTimed = 12

async function lossOf(model: Module, split: Split): Promise<(x: Tensor, y: Tensor) => Tensor> {
  const plain = (x: Tensor, y: Tensor) => {
    const loss = crossEntropy(model.forward(x), y)
    loss.backward()
    return loss
  }
  if (split === 'one') return plain
  const pipe = await pipeline(model, whereToCut())
  if (split === 'layers') return plain
  const schedule = new ScheduleGPipe(pipe, {
    splitSize: sizeOf(split)!,
    lossFn: crossEntropy,
    overlapsSends: typeof split === 'number',
  })
  return (x, y) => schedule.step(x, y).loss
}

/** Prepared steps, each with what runs it once. */
const prepared = new Map<Split, () => Promise<unknown>>()

window.benchSplit = {
  async open(given) {
    task = given
    gpu.logicalDevices(task.stages)
    return gpu.getDeviceName(0)
  },

  async stageShares() {
    const { make, sample } = models[task.model]
    const input = tensorType([Math.min(task.batch, maxTimed), ...sample])
    const model = make()
    await model.to(0)
    const times = await layerTimes(model, input, { repeats: 3 })
    const paths = layersOf(model).map(([path]) => path)
    const { stages } = await pipeline(make(), whereToCut())
    const total = times.reduce((sum, ms) => sum + ms)
    return stages.map(({ layers }) =>
      layers.reduce((sum, path) => sum + times[paths.indexOf(path)] / total, 0),
    )
  },

  async prepare(split) {
    const { make, sample, classes } = models[task.model]
    manualSeed(0)
    const model = make()
    const loss = await lossOf(model, split)
    const optimizer = new SGD(model.parameters(), { lr: 0.001 })
    const beganMs = performance.now()
    const step = await compile(
      ({ x, y }) => {
        optimizer.zeroGrad()
        const mean = loss(x, y)
        optimizer.step()
        return { mean }
      },
      { x: tensorType([task.batch, ...sample]), y: tensorType([task.batch], 'i32') },
    )
    const compileMs = performance.now() - beganMs
    const elements = sample.reduce((product, length) => product * length, task.batch)
    const x = Float32Array.from({ length: elements }, (_, i) => Math.sin(i * 1.7))
    const y = Int32Array.from({ length: task.batch }, (_, i) => i % classes)
    const devices = split === 'one' ? [0] : Array.from({ length: task.stages }, (_, i) => i)
    prepared.set(split, async () => {
      await step.run({ x, y })
      // A device without outputs may still compute.
      for (const device of devices) await gpu.synchronize(device)
    })
    const parts = step instanceof SplitProgram ? step.parts : undefined
    return {
      split,
      compileMs,
      peakBytes: parts?.map(({ program }) => program.memory.peakBytes) ?? [step.memory.peakBytes],
      sentBytes: parts?.map(({ sentBytes }) => sentBytes) ?? [0],
      tasks:
        parts?.map(({ program }, device) =>
          split === 'layers' ? tasksOfWhole(device) : tasksOf(program.prepared),
        ) ?? [],
    }
  },

  async run(split) {
    const startMs = performance.now()
    await prepared.get(split)!()
    return performance.now() - startMs
  },
}
