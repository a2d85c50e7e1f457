/**
 * An assembler for small WebAssembly modules of functions over one memory.
 *
 * source: WebAssembly core specification 2.0, chapter 5 (binary format).
 */

const types = { i32: 0x7f, f32: 0x7d, v128: 0x7b } as const
export type Type = keyof typeof types

/** A local variable of a function. Each instruction writes what it gives to a new one; engines put them into registers. */
export interface Local<T extends Type = Type> {
  readonly type: T
  readonly index: number
}

const simd = (opcode: number): number[] => [0xfd, ...unsigned(opcode)]

/** Opcodes, by what they give. */
const instructions = {
  i32: {
    'i32.add': [0x6a],
    'i32.and': [0x71],
    'i32.shr_u': [0x76],
  },
  v128: {
    'v128.load': [...simd(0x00), 0, 0],
    'v128.load32_splat': [...simd(0x09), 0, 0],
    'v128.xor': simd(0x51),
    'v128.not': simd(0x4d),
    'i32x4.splat': simd(0x11),
    'f32x4.splat': simd(0x13),
    'i32x4.shr_u': simd(0xad),
    'i32x4.add': simd(0xae),
    'i32x4.mul': simd(0xb5),
    'f32x4.convert_i32x4_s': simd(0xfa),
    'f32x4.sqrt': simd(0xe3),
    'f32x4.add': simd(0xe4),
    'f32x4.sub': simd(0xe5),
    'f32x4.mul': simd(0xe6),
    'f32x4.div': simd(0xe7),
  },
} as const

const opcodes = {
  localGet: 0x20,
  localSet: 0x21,
  i32Const: 0x41,
  i32GeU: 0x4f,
  v128Const: simd(0x0c),
  /** Their alignment and offset are 0. */
  v128Store: [...simd(0x0b), 0, 0],
  block: [0x02, 0x40],
  loop: [0x03, 0x40],
  br: 0x0c,
  brIf: 0x0d,
  end: 0x0b,
} as const

/** Builds a function without results. */
export class FunctionCode {
  readonly #parameters: Type[] = []
  readonly #locals: Type[] = []
  readonly #code: number[] = []

  /** Adds a parameter; all of them come before the first instruction. */
  parameter<T extends Type>(type: T): Local<T> {
    return { type, index: this.#parameters.push(type) - 1 }
  }

  i32(instruction: keyof typeof instructions.i32, ...operands: Local[]): Local<'i32'> {
    return this.#apply('i32', instructions.i32[instruction], operands)
  }

  v128(instruction: keyof typeof instructions.v128, ...operands: Local[]): Local<'v128'> {
    return this.#apply('v128', instructions.v128[instruction], operands)
  }

  i32Const(value: number): Local<'i32'> {
    return this.#apply('i32', [opcodes.i32Const, ...signed(value)], [])
  }

  /** Four words. */
  v128Const(words: readonly number[]): Local<'v128'> {
    const bytes = new Uint8Array(Int32Array.from(words).buffer)
    return this.#apply('v128', [...opcodes.v128Const, ...bytes], [])
  }

  store(address: Local<'i32'>, value: Local<'v128'>): void {
    this.#get(address, value)
    this.#code.push(...opcodes.v128Store)
  }

  /** Overwrites a local. */
  set<T extends Type>(local: Local<T>, value: Local<T>): void {
    this.#get(value)
    this.#set(local)
  }

  /** Calls `body` for 0, `step`, 2 `step` and so on below `end`. */
  loop(end: Local<'i32'>, step: number, body: (at: Local<'i32'>) => void): void {
    const at = this.i32Const(0)
    const stepBy = this.i32Const(step)
    this.#code.push(...opcodes.block, ...opcodes.loop)
    this.#get(at, end)
    this.#code.push(opcodes.i32GeU, opcodes.brIf, 1)
    body(at)
    this.set(at, this.i32('i32.add', at, stepBy))
    this.#code.push(opcodes.br, 0, opcodes.end, opcodes.end)
  }

  /** For the type section. */
  signature(): number[] {
    return [0x60, ...vector(this.#parameters.map((type) => [types[type]])), 0]
  }

  /** For the code section. */
  bytes(): number[] {
    const locals = vector(this.#locals.map((type) => [1, types[type]]))
    const body = [...locals, ...this.#code, opcodes.end]
    return [...unsigned(body.length), ...body]
  }

  #apply<T extends Type>(type: T, code: readonly number[], operands: readonly Local[]): Local<T> {
    this.#get(...operands)
    this.#code.push(...code)
    const local = { type, index: this.#parameters.length + this.#locals.length }
    this.#locals.push(type)
    this.#set(local)
    return local
  }

  #get(...locals: readonly Local[]): void {
    for (const { index } of locals) this.#code.push(opcodes.localGet, ...unsigned(index))
  }

  #set({ index }: Local): void {
    this.#code.push(opcodes.localSet, ...unsigned(index))
  }
}

/** A module that imports `host.memory` and exports the functions under their names. */
export function assemble(
  functions: Readonly<Record<string, FunctionCode>>,
): Uint8Array<ArrayBuffer> {
  const all = Object.entries(functions)
  const memory = [...text('host'), ...text('memory'), 0x02, 0x00, 0]
  return Uint8Array.from([
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
    ...section(
      10,
      all.map(([, code]) => code.bytes()),
    ),
  ])
}

function section(id: number, items: readonly (readonly number[])[]): number[] {
  const content = vector(items)
  return [id, ...unsigned(content.length), ...content]
}

const vector = (items: readonly (readonly number[])[]): number[] => [
  ...unsigned(items.length),
  ...items.flat(),
]

const text = (name: string): number[] =>
  vector([...new TextEncoder().encode(name)].map((byte) => [byte]))

/** LEB128. */
function unsigned(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >>> 7)]
}

function signed(value: number): number[] {
  const low = value & 0x7f
  const rest = value >> 7
  const isLast = rest === (low & 0x40 ? -1 : 0)
  return isLast ? [low] : [low | 0x80, ...signed(rest)]
}
