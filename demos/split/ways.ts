import { compile } from '../../src/graph/compile/compile.ts'
import { gpu } from '../../src/graph/compile/gpu.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import { type Piece, piecesOf } from '../../src/graph/plan/pieces.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { Module } from '../../src/nn/module.ts'
import { DataParallel } from '../../src/parallel/data-parallel/data-parallel.ts'
import { pipeline } from '../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B, ScheduleGPipe } from '../../src/parallel/pipeline/schedule.ts'
import { bubbleOf } from '../../src/parallel/pipeline/simulate.ts'
import { formatDevice } from '../../src/util/device.ts'
import { type Batch, makeNetwork, makeOptimizer, types } from './network.ts'
import type { Settings } from './settings.ts'

/** The four ways, in the order of the page. */
export const ways = {
  one: {
    title: 'One device',
    words: 'Forward, backward and optimizer, one after the other.',
  },
  data: {
    title: 'Data parallel',
    words:
      'nn.DataParallel: each device computes its rows of the batch with a copy of the network. The first device sends its parameters to the others in every step, and sums their gradients.',
  },
  model: {
    title: 'Model parallel',
    words:
      'Each device has some of the layers. One computes while the others wait for it: the devices share the memory, not the time.',
  },
  pipeline: {
    title: 'Pipeline',
    words:
      'The same layers on the same devices, with the batch cut into micro-batches: while one device computes a micro-batch, the next has the one before.',
  },
} as const
export type WayName = keyof typeof ways

/** Bytes on one device. */
export interface DeviceBytes {
  readonly parameters: number
  /** Planned for activations and gradients of a step, copies of parameters included. */
  readonly plan: number
  /** To other devices, in each step. */
  readonly sent: number
}

/** What each rank of DistributedDataParallel would send instead of DataParallel's devices: its ring's bytes, by the formula. */
export const ddpSent = (devices: readonly DeviceBytes[]): number =>
  (2 * devices[0].parameters * (devices.length - 1)) / devices.length

/** A step that was watched. units: ms from its beginning. */
export interface WatchedStep {
  readonly totalMs: number
  readonly pieces: readonly Piece[]
}

/** Of forward and backward, the share in which its devices idle. range: 0 to 1. */
export const idleShare = ({ pieces, totalMs }: WatchedStep): number =>
  bubbleOf(
    pieces
      .filter(({ phase }) => phase !== 'optimizer')
      .map(({ device, beginMs, endMs = totalMs }) => ({
        device,
        startMs: beginMs,
        endMs: Math.min(totalMs, endMs),
      })),
  )

/** A network that is split in one way, ready to train. */
export interface Way {
  readonly devices: readonly DeviceBytes[]
  /** Trains one step and returns its loss; with `onWatched`, notes when each device did what. */
  step(batch: Batch, onWatched?: (step: WatchedStep) => void): Promise<number>
  destroy(): void
}

/** Makes, splits and compiles the network. errors: those of the device. */
export async function makeWay(name: WayName, settings: Settings): Promise<Way> {
  const model = makeNetwork()
  const lossOf = await split(model, name, settings)
  const optimizer = makeOptimizer(model)
  const program = await compile(({ x, y }) => {
    optimizer.zeroGrad()
    const loss = lossOf(x, y)
    optimizer.step()
    return { loss }
  }, types)
  const { byDevice, peakBytes } = program.memory
  const onOne = { device: 'webgpu:0', peakBytes, sentBytes: 0 }
  const devices = (byDevice ?? [onOne])
    .toSorted((a, b) => a.device.localeCompare(b.device))
    .map(
      ({ device, peakBytes: plan, sentBytes: sent }): DeviceBytes => ({
        parameters: model
          .parameters()
          .filter((parameter) => formatDevice(parameter.device!) === device)
          .reduce((sum, { count }) => sum + 4 * count, 0),
        plan,
        sent,
      }),
    )
  return {
    devices,
    async step(batch, onWatched) {
      const marks: { name: string; atMs: number }[] = []
      program.onMark = onWatched && ((mark, atMs) => marks.push({ name: mark, atMs }))
      const beganMs = performance.now()
      const { loss } = await program.run({ ...batch })
      // A device without outputs may still compute, and the next way's step is timed too.
      for (let device = 0; device < devices.length; device++) await gpu.synchronize(device)
      const totalMs = performance.now() - beganMs
      onWatched?.({ totalMs, pieces: byDevice ? shifted(piecesOf(marks), beganMs) : [] })
      return loss[0]
    },
    destroy() {
      program.destroy()
      model.destroy()
    },
  }
}

/** Places the network; returns what runs forward and backward of a batch. */
async function split(
  model: Module,
  name: WayName,
  { devices, schedule, split: splitSize }: Settings,
): Promise<(x: Tensor, y: Tensor) => Tensor> {
  const plain = (own: Module) => (x: Tensor, y: Tensor) => {
    const loss = crossEntropy(own.forward(x) as Tensor, y)
    loss.backward()
    return loss
  }
  const deviceIds = Array.from({ length: devices }, (_, i) => i)
  if (name === 'one') {
    await model.to(0)
    return plain(model)
  }
  if (name === 'data') {
    await model.to(0)
    return plain(new DataParallel(model, { deviceIds }))
  }
  const pipe = await pipeline(model, { stages: devices, devices: deviceIds })
  if (name === 'model') return plain(model)
  const Kind = schedule === 'gpipe' ? ScheduleGPipe : Schedule1F1B
  const order = new Kind(pipe, { splitSize, lossFn: crossEntropy })
  return (x, y) => order.step(x, y).loss
}

const shifted = (pieces: readonly Piece[], originMs: number): Piece[] =>
  pieces.map((piece) => ({
    ...piece,
    beginMs: Math.max(0, piece.beginMs - originMs),
    endMs: piece.endMs && piece.endMs - originMs,
  }))
