import { blocksOf, shiftOf } from '../../kernels/encode/encode.ts'
import { hashWords } from '../../kernels/hash/hash-words.ts'
import { type AdamFactors, adamFactors, type SgdFactors, sgdFactors } from './arithmetic.ts'
import type { Floats, HostArrays, HostUpdate } from './host-update.ts'
import {
  hashSums,
  type VectorFunctions,
  vectorBytes,
  vectorCode,
  wordBytes,
} from './vector-code.ts'

const pageBytes = 2 ** 16
const lanes = vectorBytes / wordBytes

/**
 * Arrays in the memory of a WebAssembly module, which updates them by vectors of four with the bits of `scalarUpdate`. Undefined where the
 * engine has no such vectors, the page forbids WebAssembly, or the memory cannot be had.
 */
export function vectorArrays(lengths: readonly number[]): HostArrays | undefined {
  compiled ??= { module: unlessRefused(() => new WebAssembly.Module(vectorCode())) }
  const { module } = compiled
  if (!module) return undefined
  let bytes: number = hashSums.bytes
  // Functions read and write an array's last vector as a whole.
  const offsets = [...lengths, blocksOf(Math.max(...lengths))].map((length) => {
    const offset = bytes
    bytes += Math.ceil(length / lanes) * vectorBytes
    return offset
  })
  const initial = Math.ceil(bytes / pageBytes)
  const memory = unlessRefused(() => new WebAssembly.Memory({ initial, maximum: initial }))
  if (!memory) return undefined
  const { exports } = new WebAssembly.Instance(module, { host: { memory } })
  const scales = offsets[lengths.length]
  return {
    arrays: lengths.map((length, i) => new Float32Array(memory.buffer, offsets[i], length)),
    update: new VectorUpdate(memory.buffer, scales, exports as unknown as VectorFunctions),
  }
}

let compiled: { readonly module: WebAssembly.Module | undefined } | undefined

function unlessRefused<T>(make: () => T): T | undefined {
  try {
    return make()
  } catch {
    return undefined
  }
}

/** Of arrays in its memory. */
class VectorUpdate implements HostUpdate {
  readonly #memory: ArrayBuffer
  /** Address of the blocks' scales. */
  readonly #scales: number
  readonly #functions: VectorFunctions

  constructor(memory: ArrayBuffer, scales: number, functions: VectorFunctions) {
    this.#memory = memory
    this.#scales = scales
    this.#functions = functions
  }

  decode(sums: Int32Array, exponents: Int32Array, count: number, into: Floats): void {
    new Int32Array(this.#memory, into.byteOffset, sums.length).set(sums)
    // The bits of 2 ** -shift.
    const scales = new Int32Array(this.#memory, this.#scales, exponents.length)
    for (let i = 0; i < exponents.length; i++) scales[i] = (127 - shiftOf(exponents[i])) << 23
    this.#functions.decode(sums.length * wordBytes, into.byteOffset, this.#scales, count)
  }

  adam(param: Floats, grad: Floats, m: Floats, v: Floats, factors: AdamFactors): void {
    const addresses = [param, m, v, grad].map(({ byteOffset }) => byteOffset)
    const scalars = adamFactors.map((name) => factors[name])
    this.#functions.adam(param.byteLength, ...addresses, ...scalars)
  }

  sgd(param: Floats, grad: Floats, buffer: Floats, factors: SgdFactors): void {
    const addresses = [param, buffer, grad].map(({ byteOffset }) => byteOffset)
    const scalars = sgdFactors.map((name) => factors[name])
    this.#functions.sgd(param.byteLength, ...addresses, ...scalars)
  }

  hash(words: Uint32Array): [number, number] {
    if (words.buffer !== this.#memory) return hashWords(words)
    const whole = words.length - (words.length % lanes)
    this.#functions.hash(whole * wordBytes, words.byteOffset)
    let [a, b] = hashWords(words, whole)
    const sums = new Uint32Array(this.#memory, hashSums.address, 2 * lanes)
    for (let lane = 0; lane < lanes; lane++) {
      a = (a + sums[lane]) >>> 0
      b = (b + sums[lanes + lane]) >>> 0
    }
    return [a, b]
  }
}
