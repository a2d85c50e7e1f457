import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { blockElements, blocksOf } from '../../../src/kernels/encode/encode.ts'
import { hashWords } from '../../../src/kernels/hash/hash-words.ts'
import type { AdamFactors } from '../../../src/optim/exact/arithmetic.ts'
import { type Floats, type HostArrays, scalarArrays } from '../../../src/optim/exact/host-update.ts'
import { vectorArrays } from '../../../src/optim/exact/vector-update.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'
import golden from '../../golden/exact-update.json'

const { fround } = Math

const kinds: [string, (lengths: readonly number[]) => HostArrays][] = [
  ['numbers', scalarArrays],
  ['vectors', (lengths) => vectorArrays(lengths)!],
]

/** Arrays with these contents, and their update. */
function holding(make: (lengths: readonly number[]) => HostArrays, contents: readonly Floats[]) {
  const made = make(contents.map(({ length }) => length))
  for (const [i, array] of made.arrays.entries()) array.set(contents[i])
  return made
}

/** tests/golden/exact_update.py's formula: float32 numbers of any finite bit pattern. */
function drawn(seed: number, isNonNegative = false): Floats {
  const words = Uint32Array.from({ length: golden.count }, (_, i) => {
    let z = i + seed * golden.count
    z = Math.imul(z ^ (z >>> 16), 0x7feb352d)
    z = Math.imul(z ^ (z >>> 15), 0x846ca68b)
    z = (z ^ (z >>> 16)) >>> 0
    if ((z & 0x7f800000) === 0x7f800000) z &= 0x807fffff
    return isNonNegative ? z & 0x7fffffff : z
  })
  return new Float32Array(words.buffer)
}

/** Of the bits; those of NaN, which are not specified, count as one NaN. */
function digest(tensors: readonly Floats[]): string {
  const sha = createHash('sha256')
  for (const tensor of tensors) {
    const bits = new Uint32Array(tensor.slice().buffer)
    for (const [i, value] of tensor.entries()) if (Number.isNaN(value)) bits[i] = 0x7fc00000
    sha.update(bits)
  }
  return sha.digest('hex')
}

/** Of a step. */
function adamFactors(step: number, weightDecay: number): AdamFactors {
  const [lr, beta1, beta2, eps] = [1e-3, 0.9, 0.999, 1e-8]
  let [power1, power2] = [1, 1]
  for (let i = 0; i < step; i++) {
    power1 *= beta1
    power2 *= beta2
  }
  return {
    decay: fround(1 - lr * weightDecay),
    beta1: fround(beta1),
    oneMinusBeta1: fround(1 - beta1),
    beta2: fround(beta2),
    oneMinusBeta2: fround(1 - beta2),
    stepSize: fround((lr * Math.sqrt(1 - power2)) / (1 - power1)),
    eps: fround(eps * Math.sqrt(1 - power2)),
  }
}
const sgdFactors = { momentum: fround(0.9), lr: fround(0.05) }

describe.each(kinds)('updates on the host, by %s', (_, make) => {
  test("Adam gives the bits of PyTorch's float32 operations, denormals and overflow included", () => {
    const { arrays, update } = holding(make, [drawn(1), drawn(2), drawn(3, true), drawn(10)])
    const [param, m, v, grad] = arrays
    for (let step = 1; step <= golden.steps; step++) {
      grad.set(drawn(9 + step))
      update.adam(param, grad, m, v, adamFactors(step, 0.01))
    }
    expect(digest([param, m, v])).toBe(golden.adam)
  })

  test("SGD gives the bits of PyTorch's float32 operations", () => {
    const { arrays, update } = holding(make, [drawn(1), drawn(2), drawn(10)])
    const [param, buffer, grad] = arrays
    for (let step = 1; step <= golden.steps; step++) {
      grad.set(drawn(9 + step))
      update.sgd(param, grad, buffer, sgdFactors)
    }
    expect(digest([param, buffer])).toBe(golden.sgd)
  })

  test('decode rounds a sum three times: to float32, by the power of two, by the count', () => {
    const sums = new Int32Array(blockElements + 2).fill(2 ** 24 + 1, 0, blockElements)
    sums.set([-3, 7], blockElements)
    const { arrays, update } = make([sums.length])
    update.decode(sums, Int32Array.of(2, 30), 3, arrays[0])
    const expected = Array.from(sums, (sum, i) =>
      fround(fround(fround(sum) * (i < blockElements ? 2 ** -25 : 2 ** 3)) / 3),
    )
    expect([...arrays[0]]).toEqual(expected)
  })
})

/** From 2^-140 to 2^30, of both signs. */
function scattered(length: number, seed: number, isNonNegative = false): Floats {
  const random = seededRandom(seed)
  return Float32Array.from({ length }, () => {
    const magnitude = (1 + random()) * 2 ** (170 * random() - 140)
    return random() < 0.5 && !isNonNegative ? -magnitude : magnitude
  })
}

const positive = [
  0,
  2 ** -149,
  2 ** -126 - 2 ** -149,
  2 ** -126,
  1,
  (2 - 2 ** -23) * 2 ** 127,
  Infinity,
]
/** Each of `choices` with each of the others. */
function combined(...choices: readonly (readonly number[])[]): Floats[] {
  const count = choices.reduce((product, { length }) => product * length, 1)
  let stride = 1
  return choices.map((values) => {
    const own = stride
    stride *= values.length
    return Float32Array.from(
      { length: count },
      (_, i) => values[Math.floor(i / own) % values.length],
    )
  })
}
const special = [...positive, ...positive.map((value) => -value)]

/** Digests of what the same work gives by numbers and by vectors. */
function both(contents: readonly Floats[], work: (made: HostArrays) => void): string[] {
  return kinds.map(([, make]) => {
    const made = holding(make, contents)
    work(made)
    return digest(made.arrays)
  })
}

describe('vectors give the bits of numbers', () => {
  const adam = (weightDecay: number, grads: readonly Floats[]) => (made: HostArrays) => {
    const [param, m, v, grad] = made.arrays
    for (const [i, next] of grads.entries()) {
      grad.set(next)
      made.update.adam(param, grad, m, v, adamFactors(1 + i, weightDecay))
    }
  }
  const sgd = (grads: readonly Floats[]) => (made: HostArrays) => {
    const [param, buffer, grad] = made.arrays
    for (const next of grads) {
      grad.set(next)
      made.update.sgd(param, grad, buffer, sgdFactors)
    }
  }

  test.each([1, 2, 3, 4, 7, 258, 200_003])('over three steps of %i drawn values', (length) => {
    const [param, m, grad, ...others] = [1, 2, 3, 4, 5].map((seed) => scattered(length, seed))
    const v = scattered(length, 6, true)
    const grads = [grad, ...others]
    for (const weightDecay of [0, 0.01]) {
      const [numbers, vectors] = both([param, m, v, grad], adam(weightDecay, grads))
      expect(vectors).toBe(numbers)
    }
    const [numbers, vectors] = both([param, m, grad], sgd(grads))
    expect(vectors).toBe(numbers)
  })

  test('for zeros of both signs, denormals, the largest numbers and infinities', () => {
    const [param, m, v, grad] = combined(special, special, positive, special)
    for (const weightDecay of [0, 0.01]) {
      const [numbers, vectors] = both([param, m, v, grad], adam(weightDecay, [grad, grad]))
      expect(vectors).toBe(numbers)
    }
    const [numbers, vectors] = both([param, m, grad], sgd([grad, grad]))
    expect(vectors).toBe(numbers)
  })

  test.each([1, 3, 255, 256, 257, 200_003])('when decode takes %i sums', (length) => {
    const random = seededRandom(length)
    const sums = Int32Array.from({ length }, () => (2 * random() - 1) * 2 ** (1 + 30 * random()))
    sums.set([-(2 ** 31)])
    if (length > 2) sums.set([0, 2 ** 31 - 1], 1)
    const exponents = Int32Array.from({ length: blocksOf(length) }, () => 300 * random() - 150)
    for (const count of [1, 60, 2 ** 24 - 1]) {
      const [numbers, vectors] = both([new Float32Array(length)], ({ arrays, update }) =>
        update.decode(sums, exponents, count, arrays[0]),
      )
      expect(vectors).toBe(numbers)
    }
  })

  test.each([0, 1, 2, 3, 4, 5, 200_003])('in the hash of %i words', (length) => {
    const { arrays, update } = holding(kinds[1][1], [scattered(5, 1), scattered(length, 2)])
    const words = new Uint32Array(arrays[1].buffer, arrays[1].byteOffset, length)
    expect(update.hash(words)).toEqual(hashWords(words))
    expect(update.hash(words.slice())).toEqual(hashWords(words))
  })

  test('and leave neighbouring arrays as they are', () => {
    const contents = [3, 5, 6, 7, 5].map((length, i) => scattered(length, i, true))
    const { arrays, update } = holding(kinds[1][1], contents)
    const [before, param, m, v, after] = arrays
    update.adam(param, param, m.subarray(0, 5), v.subarray(0, 5), adamFactors(1, 0.01))
    expect(before).toEqual(contents[0])
    expect(after).toEqual(contents[4])
  })
})
