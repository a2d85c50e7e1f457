import type { Local } from '../assemble.ts'
import { constant, isUniform, laneCount, type Part, type Uniform } from './arithmetic.ts'
import type { Mask } from './place.ts'
import type { ScalarName, Type } from './types.ts'
import type { Value, Values } from './value.ts'

const order = [0, 1, 2, 3] as const

/**
 * No buffer begins below: an address of one that lacks less than that to be valid is not negative, and instructions may add the rest.
 *
 * units: bytes.
 */
export const freeBytes = 65_536

/** Reads and writes values at byte addresses, of one invocation or of four. */
export class Memory {
  readonly #values: Values

  constructor(values: Values) {
    this.#values = values
  }

  /** `wordBytes`: from one word of the value to the next. */
  load(type: Type, address: Part, wordBytes: number): Value {
    const values = this.#values
    if (values.isPacked(type) && type.kind === 'vector') {
      if (wordBytes !== 4) {
        const words = order.map((i) => this.#loadWord(type.of, this.#moved(address, i * wordBytes)))
        return values.ofComponents(type.of, words)
      }
      const local = this.#code.load('v128', 'v128.load', ...this.#address(address))
      return { type, parts: [{ kind: 'vector', local }] }
    }
    if (type.kind === 'vector' && type.size === laneCount && wordBytes === 4 && !isUniform(address))
      return { type, parts: this.#loadRows(address) }
    const parts = values
      .partTypes(type)
      .map((name, i) => this.#loadWord(name, this.#moved(address, i * wordBytes)))
    return { type, parts }
  }

  /** A vector of a word. */
  loadFourTimes(address: Uniform): Part {
    const local = this.#code.load('v128', 'v128.load32_splat', ...this.#address(address))
    return { kind: 'vector', local }
  }

  store({ type, parts }: Value, address: Part, wordBytes: number, mask: Mask): void {
    const values = this.#values
    const { arithmetic } = values
    if (values.isPacked(type) && type.kind === 'vector') {
      if (wordBytes !== 4) {
        for (const [i, word] of values.components({ type, parts }).entries())
          this.#storeWord(type.of, this.#moved(address, i * wordBytes), word, mask)
        return
      }
      this.#store(this.#address(address), arithmetic.vector(type.of, parts[0]))
      return
    }
    if (
      type.kind === 'vector' &&
      type.size === laneCount &&
      wordBytes === 4 &&
      !isUniform(address) &&
      mask === null
    ) {
      this.#storeRows(
        address,
        parts.map((part) => arithmetic.vector(type.of, part)),
      )
      return
    }
    for (const [i, name] of values.partTypes(type).entries())
      this.#storeWord(name, this.#moved(address, i * wordBytes), parts[i], mask)
  }

  get #code() {
    return this.#values.arithmetic.code
  }

  #moved(address: Part, bytes: number): Part {
    return this.#values.arithmetic.binary('+', 'u32', address, constant(bytes))
  }

  /** An address and the bytes to add, as instructions take them. */
  #address(address: Part): [Local<'i32'>, number] {
    if (address.kind === 'scalar' && address.local.type === 'i32') {
      const { local, plus = 0 } = address
      if (plus >= 0 && plus < freeBytes) return [local as Local<'i32'>, plus]
    }
    return [this.#values.arithmetic.address(address as Uniform), 0]
  }

  #store([at, plus]: [Local<'i32'>, number], value: Local<'i32' | 'f32' | 'v128'>): void {
    this.#code.store(at, value, plus)
  }

  /** The address of one of four invocations. */
  #ofLane(address: Part, lane: number): [Local<'i32'>, number] {
    const { arithmetic } = this.#values
    if (address.kind === 'vector') return this.#address(arithmetic.lane('u32', address.local, lane))
    if (address.kind !== 'linear') return this.#address(address)
    return this.#address(
      arithmetic.binary('+', 'u32', address.base, constant(lane * address.stride)),
    )
  }

  #loadWord(name: ScalarName, address: Part): Part {
    const code = this.#code
    if (isUniform(address)) {
      const at = this.#address(address)
      const local =
        name === 'f32' ? code.load('f32', 'f32.load', ...at) : code.load('i32', 'i32.load', ...at)
      return { kind: 'scalar', local }
    }
    if (address.kind === 'linear' && address.stride === 4)
      return { kind: 'vector', local: code.load('v128', 'v128.load', ...this.#ofLane(address, 0)) }
    const [first, ...others] = order
    let local = code.load('v128', 'v128.load32_splat', ...this.#ofLane(address, first))
    for (const lane of others) {
      const [at, plus] = this.#ofLane(address, lane)
      local = code.loadLane(at, local, lane, plus)
    }
    return { kind: 'vector', local }
  }

  #storeWord(name: ScalarName, address: Part, part: Part, mask: Mask): void {
    const { arithmetic } = this.#values
    const code = this.#code
    if (isUniform(address) && isUniform(part) && mask === null) {
      this.#store(this.#address(address), arithmetic.word(name, part))
      return
    }
    const vector = arithmetic.vector(name, part)
    if (address.kind === 'linear' && address.stride === 4 && mask === null) {
      this.#store(this.#ofLane(address, 0), vector)
      return
    }
    for (const lane of order) {
      const put = () => {
        const [at, plus] = this.#ofLane(address, lane)
        code.storeLane(at, vector, lane, plus)
      }
      if (mask === null) put()
      else code.if(code.extractLane('i32', mask, lane), put)
    }
  }

  /** Four vectors of memory, one for each invocation, become one for each component. */
  #loadRows(address: Part): Part[] {
    const rows = order.map((lane) =>
      this.#code.load('v128', 'v128.load', ...this.#ofLane(address, lane)),
    )
    return this.#transposed(rows).map((local) => ({ kind: 'vector', local }))
  }

  #storeRows(address: Part, columns: readonly Local<'v128'>[]): void {
    for (const [lane, row] of this.#transposed(columns).entries())
      this.#store(this.#ofLane(address, lane), row)
  }

  #transposed([a, b, c, d]: readonly Local<'v128'>[]): Local<'v128'>[] {
    const code = this.#code
    const [low, high] = [
      [0, 4, 1, 5],
      [2, 6, 3, 7],
    ]
    const [ab, cd] = [code.shuffle(a, b, low), code.shuffle(c, d, low)]
    const [AB, CD] = [code.shuffle(a, b, high), code.shuffle(c, d, high)]
    const [first, second] = [
      [0, 1, 4, 5],
      [2, 3, 6, 7],
    ]
    return [
      code.shuffle(ab, cd, first),
      code.shuffle(ab, cd, second),
      code.shuffle(AB, CD, first),
      code.shuffle(AB, CD, second),
    ]
  }
}
