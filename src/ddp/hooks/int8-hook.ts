import { poolAlignment } from '../../graph/memory/pool.ts'
import { checkFlag, checkOptions } from '../../util/options.ts'
import type { CommHook } from './comm-hooks.ts'
import { checkHook, HookState } from './hook-state.ts'

/** Options of `Int8State`. */
export interface Int8Options {
  /** True if the rounding error of a gradient is added to the next one. Default true. */
  useErrorFeedback?: boolean
}

/** State of `int8CompressHook` on this rank: the rounding errors not sent yet. Use one per model, and save it in checkpoints. */
export class Int8State extends HookState {
  readonly useErrorFeedback: boolean

  constructor(options: Int8Options = {}) {
    super()
    const { useErrorFeedback = true } = checkOptions('Int8State', options, {
      useErrorFeedback: true,
    })
    checkFlag('Int8State', 'useErrorFeedback', options.useErrorFeedback)
    this.useErrorFeedback = useErrorFeedback
  }
}

/** Values that share a scale. Parameters and ranges begin at multiples of it, so no block holds parts of two. */
const blockElements = poolAlignment

const encodedBytes = (count: number): number => 4 * Math.ceil(count / blockElements) + count

/** A scale in float32 and a byte a value, block by block: each value is scale times a whole number from -127 to 127. */
function encodeInt8(values: Float32Array): Uint8Array<ArrayBuffer> {
  const blocks = Math.ceil(values.length / blockElements)
  const bytes = new Uint8Array(encodedBytes(values.length))
  const scales = new Float32Array(bytes.buffer, 0, blocks)
  const numbers = new Int8Array(bytes.buffer, 4 * blocks)
  for (let block = 0; block < blocks; block++) {
    const from = block * blockElements
    const to = Math.min(values.length, from + blockElements)
    let largest = 0
    // Math.max keeps NaN.
    for (let i = from; i < to; i++) largest = Math.max(largest, Math.abs(values[i]))
    // Gradients that are not finite stay so: the whole block is NaN, which loss scaling and clipping look for.
    scales[block] = Number.isFinite(largest) ? largest / 127 : Number.NaN
    const scale = scales[block]
    if (!(scale > 0)) continue
    for (let i = from; i < to; i++) {
      numbers[i] = Math.max(-127, Math.min(127, Math.round(values[i] / scale)))
    }
  }
  return bytes
}

/** target[i] += value i of what `encodeInt8` made of as many values. */
function addInt8(encoded: Uint8Array, target: Float32Array): void {
  const blocks = Math.ceil(target.length / blockElements)
  const scales = new Float32Array(encoded.slice(0, 4 * blocks).buffer)
  const numbers = new Int8Array(encoded.slice(4 * blocks).buffer)
  for (let i = 0; i < target.length; i++) {
    target[i] += numbers[i] * scales[Math.floor(i / blockElements)]
  }
}

/**
 * Averages gradients sent as 8-bit numbers, with a scale for every 64 of them: about a quarter of the bytes.
 *
 * The rounding error is added to the rank's next gradient, so nothing is lost over many steps (error feedback). A rank's own range is not
 * rounded.
 * source: error feedback as in Karimireddy et al., arXiv 1901.09847.
 */
export const int8CompressHook: CommHook<Int8State> = async (state, bucket) => {
  checkHook('int8CompressHook', bucket, state, Int8State)
  const values = bucket.weighed()
  state.addErrors(bucket)
  const errors = new Float32Array(values.length)
  const all = await bucket.allToAllRanges(({ start, end }, rank) => {
    const part = values.subarray(start, end)
    // Nobody else reads this rank's own range.
    if (rank === bucket.rank) return new Uint8Array(encodedBytes(part.length))
    const encoded = encodeInt8(part)
    const arrived = new Float32Array(part.length)
    addInt8(encoded, arrived)
    for (let i = 0; i < part.length; i++) errors[start + i] = part[i] - arrived[i]
    return encoded
  })
  if (state.useErrorFeedback) state.keepErrors(bucket, errors)
  const { start, end } = bucket.ownRange()
  const own = values.subarray(start, end)
  const mine = own.slice()
  own.fill(0)
  for (const [rank, encoded] of all.entries()) {
    if (rank === bucket.rank) for (let i = 0; i < own.length; i++) own[i] += mine[i]
    else addInt8(encoded, own)
  }
  return values
}
