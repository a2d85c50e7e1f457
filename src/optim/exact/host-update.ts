import { blockElements, shiftOf } from '../../kernels/encode/encode.ts'
import { hashWords } from '../../kernels/hash/hash-words.ts'
import {
  type AdamFactors,
  adam,
  type Float32Arithmetic,
  meanOf,
  type SgdFactors,
  sgd,
} from './arithmetic.ts'

export type Floats = Float32Array<ArrayBuffer>

/**
 * Updates on the host in exactly specified arithmetic, the same bits in any engine and on any machine. Arrays change in place; factors are
 * float32.
 */
export interface HostUpdate {
  /** Sums of whole numbers as mean gradients. `into` and `sums` [n]; `exponents`: of the blocks (kernels/encode). `count`: the samples in them. */
  decode(sums: Int32Array, exponents: Int32Array, count: number, into: Floats): void
  /** shape: [n] each. */
  adam(param: Floats, grad: Floats, m: Floats, v: Floats, factors: AdamFactors): void
  /** shape: [n] each. */
  sgd(param: Floats, grad: Floats, buffer: Floats, factors: SgdFactors): void
  /** As `hashWords`. */
  hash(words: Uint32Array): [number, number]
}

/** Arrays of zeros, and the update that works on them. */
export interface HostArrays {
  readonly arrays: readonly Floats[]
  readonly update: HostUpdate
}

const { fround } = Math

/** In float64 of float32 operands, rounded at once: for these five that is the float32 operation itself. */
const float32: Float32Arithmetic<number> = {
  add: (a, b) => fround(a + b),
  subtract: (a, b) => fround(a - b),
  multiply: (a, b) => fround(a * b),
  divide: (a, b) => fround(a / b),
  squareRoot: (a) => fround(Math.sqrt(a)),
}

/** Of any arrays. */
export const scalarUpdate: HostUpdate = {
  decode(sums, exponents, count, into) {
    for (const [block, exponent] of exponents.entries()) {
      const scale = 2 ** -shiftOf(exponent)
      const end = Math.min(sums.length, (block + 1) * blockElements)
      for (let i = block * blockElements; i < end; i++)
        into[i] = meanOf(float32, fround(sums[i]), scale, count)
    }
  },
  adam(param, grad, m, v, factors) {
    for (let i = 0; i < param.length; i++) {
      const next = adam(float32, param[i], grad[i], m[i], v[i], factors)
      param[i] = next.param
      m[i] = next.m
      v[i] = next.v
    }
  },
  sgd(param, grad, buffer, factors) {
    for (let i = 0; i < param.length; i++) {
      const next = sgd(float32, param[i], grad[i], buffer[i], factors)
      param[i] = next.param
      buffer[i] = next.buffer
    }
  },
  hash: (words) => hashWords(words),
}

export const scalarArrays = (lengths: readonly number[]): HostArrays => ({
  arrays: lengths.map((length) => new Float32Array(length)),
  update: scalarUpdate,
})
