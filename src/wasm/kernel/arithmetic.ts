import { gcd } from '../../util/gcd.ts'
import type { FunctionCode, Local } from '../assemble.ts'
import { concrete, type ScalarName } from './types.ts'

/** Invocations that a vector holds one value of each. */
export const laneCount = 4

/**
 * One word of a value: known while compiling, the same for all invocations, a row of numbers over neighbouring ones, or any word for each of four.
 *
 * The four words of a `vec4` of one invocation are a vector too.
 */
export type Part =
  | { readonly kind: 'constant'; readonly value: number }
  | {
      readonly kind: 'scalar'
      readonly local: Local<'i32' | 'f32'>
      /** Of an integer: is added to the local. Loads and stores do that for nothing. */
      readonly plus?: number
      /** Divides the sum; 1 where absent. */
      readonly multiple?: number
      /** Where the word was taken from, as long as that holds it: whole vectors are faster than their words. */
      readonly from?: { readonly vector: Local<'v128'>; readonly lane: number }
    }
  | {
      readonly kind: 'linear'
      /** In the first of four invocations; each next one has `stride` more. */
      readonly base: Uniform
      readonly stride: number
    }
  | { readonly kind: 'vector'; readonly local: Local<'v128'> }
export type Uniform = Extract<Part, { kind: 'constant' | 'scalar' }>

export const constant = (value: number): Uniform => ({ kind: 'constant', value })

export const isUniform = (part: Part): part is Uniform =>
  part.kind === 'constant' || part.kind === 'scalar'

/** A word of a vector. */
type Taken = Required<Pick<Extract<Part, { kind: 'scalar' }>, 'from'>> &
  Extract<Part, { kind: 'scalar' }>

const isTaken = (part: Part): part is Taken => part.kind === 'scalar' && part.from !== undefined

const comparisons: Readonly<Record<string, string>> = {
  '==': 'eq',
  '!=': 'ne',
  '<': 'lt',
  '<=': 'le',
  '>': 'gt',
  '>=': 'ge',
}
const names: Readonly<Record<string, string>> = {
  '+': 'add',
  '-': 'sub',
  '*': 'mul',
  '/': 'div',
  '%': 'rem',
  '&': 'and',
  '|': 'or',
  '^': 'xor',
  '&&': 'and',
  '||': 'or',
  '<<': 'shl',
  '>>': 'shr',
  min: 'min',
  max: 'max',
  ...comparisons,
}

export const isComparison = (operator: string): boolean => operator in comparisons

/** A number as a word of that type holds it. */
export function asWord(type: ScalarName, value: number): number {
  if (type === 'f32') return Math.fround(value)
  if (type === 'i32') return value | 0
  return type === 'u32' ? value >>> 0 : value
}

/** Returns a number that divides a word for sure. */
const multipleOf = (part: Uniform): number =>
  part.kind === 'constant' ? Math.abs(part.value) : (part.multiple ?? 1)

function compute(operator: string, type: ScalarName, a: number, b: number): number | undefined {
  const isInteger = type === 'i32' || type === 'u32'
  switch (operator) {
    case '+':
      return asWord(type, a + b)
    case '-':
      return asWord(type, a - b)
    case '*':
      return asWord(type, isInteger ? Math.imul(a, b) : a * b)
    case '/':
      return isInteger && b === 0 ? a : asWord(type, isInteger ? Math.trunc(a / b) : a / b)
    case '%':
      return isInteger ? (b === 0 ? 0 : asWord(type, a % b)) : undefined
    case '&':
      return asWord(type, a & b)
    case '|':
      return asWord(type, a | b)
    case '^':
      return asWord(type, a ^ b)
    case '<<':
      return asWord(type, a << b)
    case '>>':
      return type === 'u32' ? a >>> b : a >> b
    case '&&':
      return a && b
    case '||':
      return a || b
    case 'min':
      return Math.min(a, b)
    case 'max':
      return Math.max(a, b)
    case '==':
      return Number(a === b)
    case '!=':
      return Number(a !== b)
    case '<':
      return Number(a < b)
    case '<=':
      return Number(a <= b)
    case '>':
      return Number(a > b)
    case '>=':
      return Number(a >= b)
  }
  return undefined
}

const plusOf = (part: Uniform): number => (part.kind === 'scalar' ? (part.plus ?? 0) : part.value)

/** Arithmetic on parts: it folds constants, keeps rows of numbers as such, and writes the code for the rest. */
export class Arithmetic {
  readonly code: FunctionCode

  constructor(code: FunctionCode) {
    this.code = code
  }

  /** A word that all invocations share, in a local. */
  word(type: ScalarName, part: Uniform): Local<'i32' | 'f32'> {
    if (part.kind === 'scalar')
      return part.plus
        ? this.code.i32('i32.add', part.local, this.code.i32Const(part.plus))
        : part.local
    return concrete(type) === 'f32'
      ? this.code.f32Const(part.value)
      : this.code.i32Const(part.value)
  }

  address(part: Uniform): Local<'i32'> {
    return this.word('i32', part) as Local<'i32'>
  }

  /** A vector of the word of each invocation. A truth is all bits. */
  vector(type: ScalarName, part: Part): Local<'v128'> {
    const { code } = this
    if (part.kind === 'vector') return part.local
    if (part.kind === 'linear') {
      const row = [0, 1, 2, 3].map((lane) => lane * part.stride)
      const base = code.v128('i32x4.splat', this.address(part.base))
      return code.v128('i32x4.add', base, code.v128Const(row))
    }
    if (part.kind === 'constant') {
      const bits =
        concrete(type) === 'f32'
          ? new Int32Array(Float32Array.of(part.value).buffer)[0]
          : part.value
      return code.v128Const(new Array(laneCount).fill(type === 'bool' ? -part.value : bits))
    }
    if (isTaken(part)) return this.#shuffled(part, part, [0, 0, 0, 0])
    if (part.local.type === 'f32') return code.v128('f32x4.splat', part.local)
    const word = this.address(part)
    return code.v128('i32x4.splat', type === 'bool' ? this.#negative(word) : word)
  }

  #negative(word: Local<'i32'>): Local<'i32'> {
    return this.code.i32('i32.sub', this.code.i32Const(0), word)
  }

  /** One invocation's word of a vector. A truth is 0 or 1. */
  lane(type: ScalarName, vector: Local<'v128'>, lane: number): Uniform {
    const { code } = this
    const from = { vector, lane }
    if (concrete(type) === 'f32')
      return { kind: 'scalar', local: code.extractLane('f32', vector, lane), from }
    const local = code.extractLane('i32', vector, lane)
    return type === 'bool'
      ? { kind: 'scalar', local: this.#negative(local) }
      : { kind: 'scalar', local, from }
  }

  /** A vector of two words of vectors; `order`: 0 for the first one, 1 for the second, for each lane. */
  #shuffled(first: Taken, second: Taken, order: readonly number[]): Local<'v128'> {
    const lanes = [first.from.lane, laneCount + second.from.lane]
    const words = order.map((one) => lanes[one])
    return this.code.shuffle(first.from.vector, second.from.vector, words)
  }

  /** The vector of four words. */
  gather(type: ScalarName, words: readonly Uniform[]): Local<'v128'> {
    if (words.every((word) => word.kind === 'constant')) {
      const bits = words.map(({ value }) =>
        concrete(type) === 'f32'
          ? new Int32Array(Float32Array.of(value).buffer)[0]
          : type === 'bool'
            ? -value
            : value,
      )
      return this.code.v128Const(bits)
    }
    const taken = words.filter(isTaken)
    if (taken.length === laneCount) {
      const [x, y, z, w] = taken
      const halves = [this.#shuffled(x, y, [0, 1, 0, 1]), this.#shuffled(z, w, [0, 1, 0, 1])]
      return this.code.shuffle(halves[0], halves[1], [0, 1, 4, 5])
    }
    const [first, ...rest] = words
    let all = this.vector(type, first)
    const isSame = (word: Uniform) =>
      word === first ||
      (word.kind === 'scalar' &&
        first.kind === 'scalar' &&
        word.local === first.local &&
        word.plus === first.plus)
    for (const [i, word] of rest.entries()) {
      if (isSame(word)) continue
      const local = this.word(type, word)
      const value = type === 'bool' ? this.#negative(local as Local<'i32'>) : local
      all = this.code.replaceLane(all, i + 1, value)
    }
    return all
  }

  binary(operator: string, type: ScalarName, a: Part, b: Part): Part {
    if (a.kind === 'constant' && b.kind === 'constant') {
      const value = compute(operator, type, a.value, b.value)
      if (value !== undefined) return constant(value)
    }
    const kept = this.#withoutEffect(operator, type, a, b)
    if (kept) return kept
    if (isUniform(a) && isUniform(b)) return this.#uniform(operator, type, a, b)
    return (
      this.#linear(operator, type, a, b) ?? {
        kind: 'vector',
        local: this.#vectors(operator, type, a, b),
      }
    )
  }

  /** Returns the operand, an integer or a truth, that the operation does not change. */
  #withoutEffect(operator: string, type: ScalarName, a: Part, b: Part): Part | undefined {
    if (type === 'f32') return undefined
    const x = a.kind === 'constant' ? a.value : undefined
    const y = b.kind === 'constant' ? b.value : undefined
    if (x === undefined && y === undefined) return undefined
    if (type === 'bool') {
      if (operator === '&&') return x === 0 || y === 1 ? a : x === 1 || y === 0 ? b : undefined
      if (operator === '||') return x === 1 || y === 0 ? a : x === 0 || y === 1 ? b : undefined
      return undefined
    }
    if (operator === '+' && x === 0) return b
    if ((operator === '+' || operator === '-') && y === 0) return a
    if ((operator === '<<' || operator === '>>') && y === 0) return a
    if (operator === '*')
      return x === 1 ? b : y === 1 ? a : x === 0 || y === 0 ? constant(0) : undefined
    if (operator === '/' && y === 1) return a
    return operator === '%' && y === 1 ? constant(0) : undefined
  }

  #uniform(operator: string, type: ScalarName, a: Uniform, b: Uniform): Uniform {
    const { code } = this
    if (operator === '/' || operator === '%') {
      const power = b.kind === 'constant' && type === 'u32' ? Math.log2(b.value) : 0.5
      if (Number.isInteger(power) && power > 0)
        return operator === '/'
          ? this.#uniform('>>', type, a, constant(power))
          : this.#uniform('&', type, a, constant((b as { value: number }).value - 1))
    }
    const kept = type === 'i32' || type === 'u32' ? this.#withSum(operator, a, b) : undefined
    if (kept) return kept
    const x = this.word(type, a)
    const y = this.word(type, b)
    const name = names[operator]
    if (type === 'f32') {
      const local = isComparison(operator)
        ? code.i32(`f32.${name}` as 'f32.eq', x, y)
        : operator === '%'
          ? this.#remainder(x as Local<'f32'>, y as Local<'f32'>)
          : code.f32(`f32.${name}` as 'f32.add', x, y)
      return { kind: 'scalar', local }
    }
    const i = x as Local<'i32'>
    const j = y as Local<'i32'>
    const sign = type === 'i32' ? '_s' : '_u'
    if (operator === 'min' || operator === 'max') {
      const isFirst = code.i32(`i32.${operator === 'min' ? 'lt' : 'gt'}${sign}` as 'i32.lt_s', i, j)
      return { kind: 'scalar', local: code.select(i, j, isFirst) }
    }
    const isSigned =
      (isComparison(operator) && operator !== '==' && operator !== '!=') ||
      '/%>>'.includes(operator)
    const divisor = operator === '/' || operator === '%' ? this.#divisor(b, j) : j
    const local = code.i32(`i32.${name}${isSigned ? sign : ''}` as 'i32.add', i, divisor)
    return { kind: 'scalar', local, multiple: this.#multiple(operator, a, b) }
  }

  /** Sums and products with constants, where the constant that is added stays apart. */
  #withSum(operator: string, a: Uniform, b: Uniform): Uniform | undefined {
    const { code } = this
    const multiple = this.#multiple(operator, a, b)
    if (operator === '+' || (operator === '-' && b.kind === 'constant')) {
      const plus = (operator === '+' ? plusOf(a) + plusOf(b) : plusOf(a) - plusOf(b)) | 0
      if (a.kind === 'scalar' && b.kind === 'scalar') {
        const local = code.i32('i32.add', a.local, b.local)
        return { kind: 'scalar', local, plus, multiple }
      }
      const of = a.kind === 'scalar' ? a : (b as Extract<Uniform, { kind: 'scalar' }>)
      return { kind: 'scalar', local: of.local, plus, multiple }
    }
    if (operator === '<<' && b.kind === 'constant')
      return this.#withSum('*', a, constant(2 ** (b.value & 31)))
    const of = a.kind === 'constant' ? b : a
    const factor = a.kind === 'constant' ? a : b
    if (operator !== '*' || of.kind !== 'scalar' || factor.kind !== 'constant') return undefined
    const local = code.i32('i32.mul', of.local, code.i32Const(factor.value))
    return { kind: 'scalar', local, plus: Math.imul(of.plus ?? 0, factor.value), multiple }
  }

  #multiple(operator: string, a: Uniform, b: Uniform): number {
    if (operator === '+' || operator === '-') return gcd(multipleOf(a), multipleOf(b)) || 1
    const product = multipleOf(a) * multipleOf(b)
    // Wrapping at 2^32 keeps powers of two.
    const kept = gcd(product, 2 ** 16)
    if (operator === '*') return kept || 1
    if (operator === '<<' && b.kind === 'constant')
      return gcd(multipleOf(a) * 2 ** b.value, 2 ** 16) || 1
    if (operator === '%' && b.kind === 'constant') return gcd(multipleOf(a), b.value) || 1
    return 1
  }

  /** By 0 nothing is divided, as in WGSL; WebAssembly would trap. */
  #divisor(part: Uniform, local: Local<'i32'>): Local<'i32'> {
    if (part.kind === 'constant' && part.value !== 0) return local
    const { code } = this
    return code.select(local, code.i32Const(1), local)
  }

  #remainder(a: Local<'f32'>, b: Local<'f32'>): Local<'f32'> {
    const { code } = this
    const whole = code.f32('f32.trunc', code.f32('f32.div', a, b))
    return code.f32('f32.sub', a, code.f32('f32.mul', whole, b))
  }

  /** Rows of numbers stay rows where that can be seen. */
  #linear(operator: string, type: ScalarName, a: Part, b: Part): Part | undefined {
    if (type !== 'i32' && type !== 'u32') return undefined
    if (operator === '+' || operator === '-') {
      const [x, y] = [rowOf(a), rowOf(b)]
      if (!x || !y) return undefined
      const stride = operator === '+' ? x.stride + y.stride : x.stride - y.stride
      const base = this.binary(operator, type, x.base, y.base) as Uniform
      return stride === 0 ? base : { kind: 'linear', base, stride }
    }
    if (a.kind !== 'linear' && operator === '*')
      return b.kind === 'linear' ? this.#linear('*', type, b, a) : undefined
    if (a.kind !== 'linear' || !isUniform(b)) return undefined
    const { base, stride } = a
    if (operator === '*' && b.kind === 'constant')
      return {
        kind: 'linear',
        base: this.binary('*', type, base, b) as Uniform,
        stride: stride * b.value,
      }
    if (operator === '<<' && b.kind === 'constant')
      return this.#linear('*', type, a, constant(2 ** b.value))
    // Four neighbours from a multiple of 4 on have the same quotient by any multiple of 4.
    const isAligned = stride === 1 && multipleOf(base) % laneCount === 0
    if (!isAligned) return undefined
    if (operator === '>>' && b.kind === 'constant' && b.value >= 2)
      return this.binary('>>', type, base, b)
    if (
      operator === '&' &&
      b.kind === 'constant' &&
      b.value >= 3 &&
      (b.value & (b.value + 1)) === 0
    )
      return { kind: 'linear', base: this.binary('&', type, base, b) as Uniform, stride }
    if (multipleOf(b) % laneCount !== 0 || (b.kind === 'constant' && b.value === 0))
      return undefined
    if (operator === '/') return this.binary('/', type, base, b)
    if (operator === '%')
      return { kind: 'linear', base: this.binary('%', type, base, b) as Uniform, stride }
    return operator === '<' || operator === '>=' ? this.binary(operator, type, base, b) : undefined
  }

  #vectors(operator: string, type: ScalarName, a: Part, b: Part): Local<'v128'> {
    const { code } = this
    const name = names[operator]
    if ((operator === '<<' || operator === '>>') && isUniform(b)) {
      const sign = operator === '<<' ? '' : type === 'i32' ? '_s' : '_u'
      const amount = this.word('u32', b)
      return code.v128(`i32x4.${name}${sign}` as 'i32x4.shl', this.vector(type, a), amount)
    }
    if (
      (operator === '/' || operator === '%') &&
      type === 'u32' &&
      b.kind === 'constant' &&
      b.value > 0
    )
      return this.#divided(operator, this.vector(type, a), b.value)
    const isByLane =
      (type !== 'f32' && '/%<<>>'.includes(operator) && !isComparison(operator)) ||
      (type === 'f32' && operator === '%')
    const x = this.vector(type, a)
    const y = this.vector(type, b)
    if (isByLane) return this.#byLane(operator, type, x, y)
    const sign = type === 'i32' ? '_s' : '_u'
    if ('&|^'.includes(operator) || operator === '&&' || operator === '||')
      return code.v128(`v128.${name}` as 'v128.and', x, y)
    if (type === 'f32') return code.v128(`f32x4.${name}` as 'f32x4.add', x, y)
    if (type === 'bool') return code.v128(`i32x4.${name}` as 'i32x4.eq', x, y)
    const isSigned = ['<', '<=', '>', '>=', 'min', 'max'].includes(operator)
    return code.v128(`i32x4.${name}${isSigned ? sign : ''}` as 'i32x4.add', x, y)
  }

  #byLane(operator: string, type: ScalarName, a: Local<'v128'>, b: Local<'v128'>): Local<'v128'> {
    const words = [0, 1, 2, 3].map((lane) =>
      this.#uniform(operator, type, this.lane(type, a, lane), this.lane(type, b, lane)),
    )
    return this.gather(type, words)
  }

  /** Quotient or remainder of unsigned words by a constant: (x + 1/2) / divisor in f64 is never rounded over a whole number. */
  #divided(operator: string, x: Local<'v128'>, divisor: number): Local<'v128'> {
    const { code } = this
    const power = Math.log2(divisor)
    if (Number.isInteger(power))
      return operator === '/'
        ? code.v128('i32x4.shr_u', x, code.i32Const(power))
        : code.v128('v128.and', x, this.vector('u32', constant(divisor - 1)))
    const half = code.v128('f64x2.splat', code.f64Const(0.5))
    const factor = code.v128('f64x2.splat', code.f64Const(1 / divisor))
    const quotients = (low: Local<'v128'>) => {
      const wide = code.v128('f64x2.convert_low_i32x4_u', low)
      const scaled = code.v128('f64x2.mul', code.v128('f64x2.add', wide, half), factor)
      return code.v128('i32x4.trunc_sat_f64x2_u_zero', scaled)
    }
    const high = code.shuffle(x, x, [2, 3, 2, 3])
    const quotient = code.shuffle(quotients(x), quotients(high), [0, 1, 4, 5])
    if (operator === '/') return quotient
    const whole = code.v128('i32x4.mul', quotient, this.vector('u32', constant(divisor)))
    return code.v128('i32x4.sub', x, whole)
  }

  not(part: Part): Part {
    if (part.kind === 'constant') return constant(1 - part.value)
    if (isUniform(part)) return { kind: 'scalar', local: this.code.i32('i32.eqz', part.local) }
    return { kind: 'vector', local: this.code.v128('v128.not', this.vector('bool', part)) }
  }

  negative(type: ScalarName, part: Part): Part {
    if (part.kind === 'constant') return constant(asWord(type, -part.value))
    if (type !== 'f32') return this.binary('-', type, constant(0), part)
    return isUniform(part)
      ? { kind: 'scalar', local: this.code.f32('f32.neg', part.local) }
      : { kind: 'vector', local: this.code.v128('f32x4.neg', this.vector(type, part)) }
  }

  /** One of f32's instructions with one operand. */
  unary(name: 'abs' | 'ceil' | 'floor' | 'trunc' | 'nearest' | 'sqrt', part: Part): Part {
    const { code } = this
    return isUniform(part)
      ? { kind: 'scalar', local: code.f32(`f32.${name}`, this.word('f32', part)) }
      : { kind: 'vector', local: code.v128(`f32x4.${name}`, this.vector('f32', part)) }
  }

  select(type: ScalarName, no: Part, yes: Part, condition: Part): Part {
    const { code } = this
    if (condition.kind === 'constant') return condition.value ? yes : no
    if (isUniform(condition)) {
      const test = condition.local as Local<'i32'>
      if (isUniform(no) && isUniform(yes))
        return {
          kind: 'scalar',
          local: code.select(this.word(type, yes), this.word(type, no) as Local<'i32'>, test),
        }
      return {
        kind: 'vector',
        local: code.select(this.vector(type, yes), this.vector(type, no), test),
      }
    }
    return {
      kind: 'vector',
      local: code.v128(
        'v128.bitselect',
        this.vector(type, yes),
        this.vector(type, no),
        this.vector('bool', condition),
      ),
    }
  }

  /** A value's bits, or its number, as another type. */
  convert(from: ScalarName, to: ScalarName, part: Part, isBits: boolean): Part {
    const { code } = this
    if (from === to) return part
    const isFloat = (name: ScalarName) => concrete(name) === 'f32'
    if (isBits || (isFloat(from) === isFloat(to) && from !== 'bool' && to !== 'bool'))
      return this.#bits(from, to, part, isBits)
    if (part.kind === 'constant') return constant(number(to, part.value))
    if (to === 'bool') return this.binary('!=', from, part, constant(0))
    if (from === 'bool') return this.select(to, constant(0), constant(1), part)
    if (isFloat(to)) {
      const sign = from === 'i32' || from === 'int' ? 's' : 'u'
      return isUniform(part)
        ? { kind: 'scalar', local: code.f32(`f32.convert_i32_${sign}`, this.word(from, part)) }
        : {
            kind: 'vector',
            local: code.v128(`f32x4.convert_i32x4_${sign}`, this.vector(from, part)),
          }
    }
    const sign = to === 'i32' ? 's' : 'u'
    return isUniform(part)
      ? { kind: 'scalar', local: code.i32(`i32.trunc_sat_f32_${sign}`, part.local) }
      : {
          kind: 'vector',
          local: code.v128(`i32x4.trunc_sat_f32x4_${sign}`, this.vector(from, part)),
        }
  }

  #bits(from: ScalarName, to: ScalarName, part: Part, isBits: boolean): Part {
    const isToFloat = concrete(to) === 'f32'
    const isSame = (concrete(from) === 'f32') === isToFloat
    if (part.kind === 'constant') {
      if (!isBits) return constant(asWord(concrete(to), part.value))
      const word = new DataView(new ArrayBuffer(4))
      if (concrete(from) === 'f32') word.setFloat32(0, part.value)
      else word.setUint32(0, part.value >>> 0)
      // A NaN's bits would not survive as a number.
      if (isToFloat && Number.isNaN(word.getFloat32(0)) && !isSame)
        return {
          kind: 'scalar',
          local: this.code.f32('f32.reinterpret_i32', this.code.i32Const(part.value)),
        }
      return constant(isToFloat ? word.getFloat32(0) : asWord(to, word.getInt32(0)))
    }
    if (isSame || part.kind === 'vector') return part
    if (part.kind === 'linear') return { kind: 'vector', local: this.vector(from, part) }
    const local = this.word(from, part)
    return {
      kind: 'scalar',
      local: isToFloat
        ? this.code.f32('f32.reinterpret_i32', local)
        : this.code.i32('i32.reinterpret_f32', local),
    }
  }
}

/** A uniform word is a row of stride 0. */
const rowOf = (part: Part): { base: Uniform; stride: number } | undefined =>
  part.kind === 'linear' ? part : isUniform(part) ? { base: part, stride: 0 } : undefined

function number(to: ScalarName, value: number): number {
  if (to === 'bool') return Number(value !== 0)
  if (concrete(to) === 'f32') return Math.fround(value)
  const [low, high] = to === 'u32' ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1]
  return Number.isNaN(value) ? 0 : Math.min(high, Math.max(low, Math.trunc(value)))
}
