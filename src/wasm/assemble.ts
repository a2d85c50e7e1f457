import { Body, type Local, type Type } from './body.ts'
import {
  control,
  instructions,
  lanes,
  loads,
  signed,
  stores,
  unsigned,
  valueTypes,
} from './opcodes.ts'

export type { Local } from './body.ts'

type Instruction<T extends Type> = keyof (typeof instructions)[T]

/** A place to branch to. */
export interface Label {
  readonly depth: number
}

/**
 * Builds a function without results.
 *
 * source: WebAssembly core specification 2.0, chapter 5 (binary format).
 */
export class FunctionCode {
  readonly #body = new Body()
  #depth = 0
  readonly #isRelaxed: boolean
  /** The factors of products in this run of instructions without jumps, by the number of the result, if none was overwritten. */
  readonly #products = new Map<number, readonly Local[]>()

  /** `isRelaxed`: a sum with a product of vectors becomes a `relaxed_madd`, which rounds once or twice, as the CPU has it. */
  constructor({ isRelaxed = false } = {}) {
    this.#isRelaxed = isRelaxed
  }

  /** Adds a parameter; all of them come before the first instruction. */
  parameter<T extends Type>(type: T): Local<T> {
    return this.#body.parameter(type)
  }

  /** Adds a variable, which is 0 at first. */
  local<T extends Type>(type: T): Local<T> {
    return this.#body.variable(type)
  }

  i32(instruction: Instruction<'i32'>, ...operands: Local[]): Local<'i32'> {
    return this.#apply('i32', instructions.i32[instruction], operands)
  }

  f32(instruction: Instruction<'f32'>, ...operands: Local[]): Local<'f32'> {
    return this.#apply('f32', instructions.f32[instruction], operands)
  }

  i64(instruction: Instruction<'i64'>, ...operands: Local[]): Local<'i64'> {
    return this.#apply('i64', instructions.i64[instruction], operands)
  }

  f64(instruction: Instruction<'f64'>, ...operands: Local[]): Local<'f64'> {
    return this.#apply('f64', instructions.f64[instruction], operands)
  }

  v128(instruction: Instruction<'v128'>, ...operands: Local[]): Local<'v128'> {
    if (!this.#isRelaxed) return this.#apply('v128', instructions.v128[instruction], operands)
    const at = operands.findIndex(({ index }) => this.#products.has(index))
    if (instruction === 'f32x4.add' && at >= 0) {
      const factors = this.#products.get(operands[at].index)!
      const madd = instructions.v128['f32x4.relaxed_madd']
      return this.#apply('v128', madd, [...factors, operands[1 - at]])
    }
    const result = this.#apply('v128', instructions.v128[instruction], operands)
    if (instruction === 'f32x4.mul') this.#products.set(result.index, operands)
    return result
  }

  i32Const(value: number): Local<'i32'> {
    return this.#apply('i32', control.i32Const, [], signed(value | 0))
  }

  i64Const(value: number): Local<'i64'> {
    return this.#apply('i64', control.i64Const, [], signed64(BigInt(value)))
  }

  f32Const(value: number): Local<'f32'> {
    return this.#apply('f32', control.f32Const, [], bytesOf(Float32Array.of(value)))
  }

  f64Const(value: number): Local<'f64'> {
    return this.#apply('f64', control.f64Const, [], bytesOf(Float64Array.of(value)))
  }

  /** Four words. */
  v128Const(words: readonly number[]): Local<'v128'> {
    return this.#apply('v128', control.v128Const, [], bytesOf(Int32Array.from(words)))
  }

  load<T extends 'i32' | 'f32' | 'v128'>(
    type: T,
    instruction: keyof (typeof loads)[T],
    address: Local<'i32'>,
    offset = 0,
  ): Local<T> {
    const code = loads[type][instruction] as readonly number[]
    return this.#apply(type, code, [address], unsigned(offset))
  }

  store(address: Local<'i32'>, value: Local<'i32' | 'f32' | 'v128'>, offset = 0): void {
    this.#body.get(address)
    this.#body.get(value)
    this.#body.add(stores[value.type])
    this.#body.add(unsigned(offset))
  }

  /** A vector with one lane loaded. */
  loadLane(address: Local<'i32'>, vector: Local<'v128'>, lane: number, offset = 0): Local<'v128'> {
    return this.#apply('v128', lanes.load, [address, vector], [...unsigned(offset), lane])
  }

  storeLane(address: Local<'i32'>, vector: Local<'v128'>, lane: number, offset = 0): void {
    this.#body.get(address)
    this.#body.get(vector)
    this.#body.add([...lanes.store, ...unsigned(offset), lane])
  }

  /** Fills memory with zeros. */
  clear(address: Local<'i32'>, bytes: Local<'i32'>): void {
    const zero = this.i32Const(0)
    for (const operand of [address, zero, bytes]) this.#body.get(operand)
    this.#body.add(control.memoryFill)
  }

  extractLane<T extends 'i32' | 'f32'>(type: T, vector: Local<'v128'>, lane: number): Local<T> {
    return this.#apply(type, lanes.extract[type], [vector], [lane])
  }

  replaceLane(vector: Local<'v128'>, lane: number, value: Local<'i32' | 'f32'>): Local<'v128'> {
    return this.#apply('v128', lanes.replace[value.type], [vector, value], [lane])
  }

  /** Words of two vectors by number: 0 to 3 of the first, 4 to 7 of the second. */
  shuffle(first: Local<'v128'>, second: Local<'v128'>, words: readonly number[]): Local<'v128'> {
    const bytes = Array.from({ length: 16 }, (_, i) => 4 * words[i >> 2] + (i & 3))
    return this.#apply('v128', control.shuffle, [first, second], bytes)
  }

  /** `yes` where the condition is not 0. */
  select<T extends Type>(yes: Local<T>, no: Local<T>, condition: Local<'i32'>): Local<T> {
    if (yes.type !== 'v128') return this.#apply(yes.type, control.select, [yes, no, condition])
    return this.#apply(yes.type, [0x1c, 1, valueTypes.v128], [yes, no, condition])
  }

  /** Overwrites a local. */
  set<T extends Type>(local: Local<T>, value: Local<T>): void {
    for (const [product, factors] of this.#products)
      if (product === local.index || factors.some(({ index }) => index === local.index))
        this.#products.delete(product)
    this.#body.get(value)
    this.#body.set(local)
  }

  copy<T extends Type>(value: Local<T>): Local<T> {
    return this.#apply(value.type, [], [value])
  }

  /** Runs `body`; a branch to its label goes behind it. */
  block(body: (after: Label) => void): void {
    this.#nest(control.block, body)
  }

  /** Runs `body` once; a branch to its label begins it again. */
  repeat(body: (again: Label) => void): void {
    this.#body.loop(() => this.#nest(control.loop, body))
  }

  if(condition: Local<'i32'>, then: () => void, otherwise?: () => void): void {
    this.#body.get(condition)
    this.#nest(control.if, () => {
      then()
      if (!otherwise) return
      this.#products.clear()
      this.#body.add([control.else])
      otherwise()
    })
  }

  branch({ depth }: Label): void {
    this.#body.add([control.br, ...unsigned(this.#depth - depth)])
  }

  branchIf({ depth }: Label, condition: Local<'i32'>): void {
    this.#body.get(condition)
    this.#body.add([control.brIf, ...unsigned(this.#depth - depth)])
  }

  /** Calls `body` for 0, `step`, 2 `step` and so on below `end`. */
  loop(end: Local<'i32'>, step: number, body: (at: Local<'i32'>) => void): void {
    const at = this.copy(this.i32Const(0))
    const stepBy = this.i32Const(step)
    const isBelow = () => this.i32('i32.lt_u', at, end)
    this.while(isBelow, () => {
      body(at)
      this.set(at, this.i32('i32.add', at, stepBy))
    })
  }

  /**
   * Runs `body` as long as the condition is not 0; a branch to its label goes behind the loop.
   *
   * The condition is written before the loop and at its end: a turn has one branch, and a product takes 0.85 of the time of a loop that begins with it.
   */
  while(condition: () => Local<'i32'>, body: (after: Label) => void): void {
    this.block((after) => {
      this.branchIf(after, this.i32('i32.eqz', condition()))
      this.repeat((again) => {
        body(after)
        this.branchIf(again, condition())
      })
    })
  }

  /** For the type section. */
  signature(): number[] {
    return [0x60, ...vector(this.#body.parameters.map((type) => [valueTypes[type]])), 0]
  }

  /** For the code section. */
  bytes(): Uint8Array {
    return this.#body.bytes()
  }

  #nest(opcode: readonly number[], body: (label: Label) => void): void {
    this.#products.clear()
    this.#body.add(opcode)
    this.#depth++
    body({ depth: this.#depth })
    this.#depth--
    this.#body.add([control.end])
    this.#products.clear()
  }

  /** `immediate`: the part of the instruction that its opcode does not say. */
  #apply<T extends Type>(
    type: T,
    code: readonly number[],
    operands: readonly Local[],
    immediate?: readonly number[],
  ): Local<T> {
    // An iterator would take longer than all the rest.
    for (let i = 0; i < operands.length; i++) this.#body.get(operands[i])
    if (code.length > 0) this.#body.add(code)
    if (immediate) this.#body.add(immediate)
    return this.#body.result(type)
  }
}

const bytesOf = ({ buffer }: { readonly buffer: ArrayBufferLike }): number[] =>
  Array.from(new Uint8Array(buffer))

function signed64(value: bigint): number[] {
  const low = Number(value & 0x7fn)
  const rest = value >> 7n
  const isLast = rest === (low & 0x40 ? -1n : 0n)
  return isLast ? [low] : [low | 0x80, ...signed64(rest)]
}

/**
 * A module that imports `host.memory` and exports the functions under their names.
 *
 * `isShared`: the memory is shared between threads, of at most 4 GiB.
 */
export function assemble(
  functions: Readonly<Record<string, FunctionCode>>,
  isShared = false,
): Uint8Array<ArrayBuffer> {
  const all = Object.entries(functions)
  const limits = isShared ? [0x03, 0, ...unsigned(65_536)] : [0x00, 0]
  const memory = [...text('host'), ...text('memory'), 0x02, ...limits]
  const bodies = all.map(([, code]) => code.bytes())
  const sizes = bodies.map(({ length }) => unsigned(length))
  const codeBytes = bodies.reduce((sum, { length }, i) => sum + length + sizes[i].length, 0)
  const count = unsigned(all.length)
  const head = [
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(
      1,
      all.map(([, code]) => code.signature()),
    ),
    ...section(2, [memory]),
    ...section(
      3,
      all.map((_, i) => unsigned(i)),
    ),
    ...section(
      7,
      all.map(([name], i) => [...text(name), 0x00, ...unsigned(i)]),
    ),
    ...[10, ...unsigned(count.length + codeBytes), ...count],
  ]
  const bytes = new Uint8Array(head.length + codeBytes)
  bytes.set(head)
  let at = head.length
  for (const [i, body] of bodies.entries()) {
    bytes.set(sizes[i], at)
    bytes.set(body, at + sizes[i].length)
    at += sizes[i].length + body.length
  }
  return bytes
}

function section(id: number, items: readonly (readonly number[])[]): number[] {
  const content = vector(items)
  return [id, ...unsigned(content.length), ...content]
}

const vector = (items: readonly (readonly number[])[]): number[] => [
  ...unsigned(items.length),
  ...items.flat(),
]

/** A name of ASCII. */
const text = (name: string): number[] => [name.length, ...[...name].map((one) => one.charCodeAt(0))]
