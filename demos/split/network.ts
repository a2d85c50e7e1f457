import { manualSeed } from '../../src/nn/init.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { tensorType } from '../../src/util/shape.ts'
import { batch } from './settings.ts'

const width = 160
const batchesOfAll = 4
const points = batchesOfAll * batch

export const types = { x: tensorType([batch, 2]), y: tensorType([batch], 'i32') }

/** Four linear layers. Every one that is made begins with the same weights. */
export function makeNetwork(): Sequential {
  manualSeed(0)
  return new Sequential(
    new Linear(2, width),
    new ReLU(),
    new Linear(width, width),
    new ReLU(),
    new Linear(width, width),
    new ReLU(),
    new Linear(width, 2),
  )
}

export interface Batch {
  readonly x: Float32Array<ArrayBuffer>
  readonly y: Int32Array<ArrayBuffer>
}

/** The points of a step on two spirals, from their whole length; four steps have all points. */
export function batchOf(step: number): Batch {
  const x = new Float32Array(2 * batch)
  const y = new Int32Array(batch)
  for (let row = 0; row < batch; row++) {
    const arm = row % 2
    const along = (2 * batchesOfAll * (row >> 1) + 2 * (step % batchesOfAll) + 1) / points
    const angle = 3.5 * Math.PI * along + arm * Math.PI
    x[2 * row] = along * Math.cos(angle)
    x[2 * row + 1] = along * Math.sin(angle)
    y[row] = arm
  }
  return { x, y }
}
