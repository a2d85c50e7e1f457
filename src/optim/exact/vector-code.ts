import { blockElements } from '../../kernels/encode/encode.ts'
import { assemble, FunctionCode, type Local } from '../../wasm/assemble.ts'
import { adam, adamFactors, type Float32Arithmetic, meanOf, sgd, sgdFactors } from './arithmetic.ts'

type Vector = Local<'v128'>

/** units: bytes. */
export const vectorBytes = 16
export const wordBytes = 4
/** Where `hash` leaves its sums: four words for the first half, four for the second. */
export const hashSums = { address: 0, bytes: 2 * vectorBytes } as const

/** Functions over the bytes from each address on, in whole vectors. */
export interface VectorFunctions {
  /** `numbers`: the addresses of param, m, v and grad, then `adamFactors`. */
  adam(bytes: number, ...numbers: number[]): void
  /** `numbers`: the addresses of param, buffer and grad, then `sgdFactors`. */
  sgd(bytes: number, ...numbers: number[]): void
  /** Whole numbers become floats in their place; each block's scale is a float from `scales` on. */
  decode(bytes: number, address: number, scales: number, count: number): void
  /** As `hashWords` from the first word on; the words of `hashSums` add up to it. */
  hash(bytes: number, address: number): void
}

/** The module of `VectorFunctions`. */
export const vectorCode = (): Uint8Array<ArrayBuffer> =>
  assemble({
    adam: update(3, adamFactors, (float32, [param, m, v, grad], factors) => {
      const next = adam(float32, param, grad, m, v, factors)
      return [next.param, next.m, next.v]
    }),
    sgd: update(2, sgdFactors, (float32, [param, buffer, grad], factors) => {
      const next = sgd(float32, param, grad, buffer, factors)
      return [next.param, next.buffer]
    }),
    decode: decode(),
    hash: hash(),
  })

const float32Of = (code: FunctionCode): Float32Arithmetic<Vector> => ({
  add: (a, b) => code.v128('f32x4.add', a, b),
  subtract: (a, b) => code.v128('f32x4.sub', a, b),
  multiply: (a, b) => code.v128('f32x4.mul', a, b),
  divide: (a, b) => code.v128('f32x4.div', a, b),
  squareRoot: (a) => code.v128('f32x4.sqrt', a),
})

/** `changed`: the number of arrays that it changes; one more holds the gradient. `rule`: gives what these are next. */
function update<Name extends string>(
  changed: number,
  names: readonly Name[],
  rule: (
    float32: Float32Arithmetic<Vector>,
    vectors: readonly Vector[],
    factors: Readonly<Record<Name, Vector>>,
  ) => readonly Vector[],
): FunctionCode {
  const code = new FunctionCode()
  const bytes = code.parameter('i32')
  const addresses = Array.from({ length: changed + 1 }, () => code.parameter('i32'))
  const scalars = names.map(() => code.parameter('f32'))
  const factors = Object.fromEntries(
    names.map((name, i) => [name, code.v128('f32x4.splat', scalars[i])]),
  ) as Record<Name, Vector>
  code.loop(bytes, vectorBytes, (at) => {
    const places = addresses.map((address) => code.i32('i32.add', address, at))
    const vectors = places.map((place) => code.load('v128', 'v128.load', place))
    const next = rule(float32Of(code), vectors, factors)
    for (const [i, value] of next.entries()) code.store(places[i], value)
  })
  return code
}

function decode(): FunctionCode {
  const code = new FunctionCode()
  const bytes = code.parameter('i32')
  const address = code.parameter('i32')
  const scales = code.parameter('i32')
  const count = code.v128('f32x4.splat', code.parameter('f32'))
  // From a byte's place in the array to that of its block's scale.
  const shift = code.i32Const(Math.log2(blockElements))
  const wholeWords = code.i32Const(-wordBytes)
  code.loop(bytes, vectorBytes, (at) => {
    const place = code.i32('i32.add', address, at)
    const block = code.i32('i32.and', code.i32('i32.shr_u', at, shift), wholeWords)
    const scale = code.load('v128', 'v128.load32_splat', code.i32('i32.add', scales, block))
    const sum = code.v128('f32x4.convert_i32x4_s', code.load('v128', 'v128.load', place))
    code.store(place, meanOf(float32Of(code), sum, scale, count))
  })
  return code
}

/** source: kernels/hash. */
function hash(): FunctionCode {
  const code = new FunctionCode()
  const bytes = code.parameter('i32')
  const address = code.parameter('i32')
  const xor = (a: Vector, b: Vector) => code.v128('v128.xor', a, b)
  const add = (a: Vector, b: Vector) => code.v128('i32x4.add', a, b)
  const all = (word: number) => code.v128Const([word, word, word, word])
  /** Shifts and factors of a mix: z ^ z >>> shift, between two of them times a factor. */
  const mixer = (shifts: readonly number[], words: readonly number[]) => {
    const amounts = shifts.map((shift) => code.i32Const(shift))
    const factors = words.map(all)
    return (start: Vector) =>
      amounts.reduce((z, amount, i) => {
        const folded = xor(z, code.v128('i32x4.shr_u', z, amount))
        return i < factors.length ? code.v128('i32x4.mul', folded, factors[i]) : folded
      }, start)
  }
  const mixA = mixer([16, 15, 16], [0x7feb352d, 0x846ca68b])
  const mixB = mixer([16, 13, 16], [0x85ebca6b, 0xc2b2ae35])
  const [a, b] = [all(0), all(0)]
  const index = code.v128Const([0, 1, 2, 3])
  const four = all(4)
  code.loop(bytes, vectorBytes, (at) => {
    const bits = code.load('v128', 'v128.load', code.i32('i32.add', address, at))
    code.set(a, add(a, mixA(xor(bits, mixB(index)))))
    code.set(b, add(b, mixB(add(bits, mixA(code.v128('v128.not', index))))))
    code.set(index, add(index, four))
  })
  code.store(code.i32Const(hashSums.address), a)
  code.store(code.i32Const(hashSums.address + vectorBytes), b)
  return code
}
