import type { Local } from '../assemble.ts'
import type { Expression, FunctionDeclaration, Shader } from '../wgsl/syntax.ts'
import { shaderError } from '../wgsl/tokens.ts'
import {
  asWord,
  constant,
  isComparison,
  isUniform,
  laneCount,
  type Part,
  type Uniform,
} from './arithmetic.ts'
import { type CallWriter, callBuiltin } from './builtins.ts'
import type { Mask, Place } from './place.ts'
import {
  concrete,
  isAbstract,
  type ScalarName,
  scalar,
  type Type,
  typeOf,
  vectorOf,
} from './types.ts'
import { elementOf, type Value } from './value.ts'
import { Variables, type WriterOptions } from './variables.ts'

export interface KernelSource {
  readonly shader: Shader
  readonly functions: ReadonlyMap<string, FunctionDeclaration>
}

/** Writes the code of expressions. */
export abstract class Expressions extends Variables implements CallWriter {
  readonly #source: KernelSource

  constructor(options: WriterOptions, source: KernelSource) {
    super(options)
    this.#source = source
  }

  /** Writes a function's body in place of its call. */
  abstract inline(own: FunctionDeclaration, given: readonly Value[]): Value

  type(name: Parameters<typeof typeOf>[0], line: number): Type {
    return typeOf(name, this.#source.shader, line, (count) => {
      const [part] = this.value(count).parts
      if (part.kind === 'constant') return part.value
      throw shaderError(line, 'the count of an array must be constant')
    })
  }

  /** The place that an expression names; undefined for one that has none. */
  place(expression: Expression): Place | undefined {
    if (expression.kind === 'name') {
      const found = this.find(expression.name, expression.line)
      if (found.kind === 'computed') return { kind: 'value', value: found.value() }
      return found.kind === 'frame' ? this.ofInvocation(found) : found
    }
    if (expression.kind === 'index') {
      const of = this.place(expression.of)
      return of && this.element(of, this.#index(expression.index), expression.line)
    }
    if (expression.kind !== 'member') return undefined
    const of = this.place(expression.of)
    return of && this.member(of, expression.name, expression.line)
  }

  value(expression: Expression): Value {
    const { line } = expression
    switch (expression.kind) {
      case 'number': {
        const { suffix, value } = expression
        const name =
          suffix === 'f' ? 'f32' : suffix === 'i' ? 'i32' : suffix === 'u' ? 'u32' : suffix
        return { type: scalar(name), parts: [constant(asWord(name, value))] }
      }
      case 'bool':
        return { type: scalar('bool'), parts: [constant(Number(expression.value))] }
      case 'unary':
        return this.#unary(expression.operator, this.value(expression.of))
      case 'binary':
        return this.#binary(expression)
      case 'call':
        return this.call(expression)
      default: {
        const place = this.place(expression)
        if (place) return this.load(place)
      }
    }
    const of =
      expression.kind === 'index' || expression.kind === 'member'
        ? this.value(expression.of)
        : undefined
    if (!of) throw shaderError(line, 'expected a value')
    const held: Place = { kind: 'value', value: of }
    return this.load(
      expression.kind === 'index'
        ? this.element(held, this.#index((expression as { index: Expression }).index), line)
        : this.member(held, (expression as { name: string }).name, line),
    )
  }

  #index(expression: Expression): Part {
    return this.value(expression).parts[0]
  }

  #unary(operator: string, { type, parts }: Value): Value {
    const name = elementOf(type)!
    const make = (part: Part): Part =>
      operator === '-'
        ? this.arithmetic.negative(name, part)
        : operator === '!'
          ? this.arithmetic.not(part)
          : this.arithmetic.binary('^', name, part, constant(asWord(name, -1)))
    return { type, parts: parts.map(make) }
  }

  #binary({ operator, left, right, line }: Extract<Expression, { kind: 'binary' }>): Value {
    const a = this.value(left)
    if (operator === '&&' || operator === '||') return this.#logical(operator, a, right)
    return this.combine(operator, a, this.value(right), line)
  }

  /** The right side is computed only where it decides. */
  #logical(operator: '&&' | '||', left: Value, right: Expression): Value {
    const [a] = left.parts
    const type = scalar('bool')
    if (a.kind === 'constant')
      return Boolean(a.value) === (operator === '&&') ? this.value(right) : { type, parts: [a] }
    if (isUniform(a)) {
      const result = this.code.copy(this.arithmetic.word('bool', a) as Local<'i32'>)
      const isOpen = operator === '&&' ? result : this.code.i32('i32.eqz', result)
      let other: Part = constant(0)
      const key = `${this.path}:logic${this.calls++}`
      if (this.findings.has(key)) {
        // The right side differs between invocations.
        const outcome = this.code.local('v128')
        this.code.set(outcome, this.arithmetic.vector('bool', { kind: 'scalar', local: result }))
        this.code.if(isOpen, () => {
          ;[other] = this.value(right).parts
          this.code.set(outcome, this.arithmetic.vector('bool', other))
        })
        return { type, parts: [{ kind: 'vector', local: outcome }] }
      }
      this.code.if(isOpen, () => {
        ;[other] = this.value(right).parts
        if (isUniform(other))
          this.code.set(result, this.arithmetic.word('bool', other) as Local<'i32'>)
        else this.findings.add(key)
      })
      return { type, parts: [{ kind: 'scalar', local: result }] }
    }
    const before = this.mask
    const open = operator === '&&' ? a : this.arithmetic.not(a)
    this.mask = this.both(before, open)
    const [b] = this.value(right).parts
    this.mask = before
    return { type, parts: [this.arithmetic.binary(operator, 'bool', a, b)] }
  }

  both(mask: Mask, condition: Part): Local<'v128'> {
    const vector = this.arithmetic.vector('bool', condition)
    return mask === null ? vector : this.code.v128('v128.and', mask, vector)
  }

  combine(operator: string, left: Value, right: Value, line: number): Value {
    const isShift = operator === '<<' || operator === '>>'
    const l = elementOf(left.type)
    const r = elementOf(right.type)
    if (!l || !r) throw shaderError(line, `"${operator}" needs numbers`)
    const name = isShift ? l : commonName(l, r)
    if (
      !isShift &&
      ((concrete(name) !== concrete(l) && !isAbstract(l)) ||
        (concrete(name) !== concrete(r) && !isAbstract(r)))
    )
      throw shaderError(line, `"${operator}" between ${l} and ${r}`)
    const a = this.values.as(left, name)
    const b = this.values.as(right, isShift ? 'u32' : name)
    const isVector =
      a.type.kind === 'vector' ? a.type : b.type.kind === 'vector' ? b.type : undefined
    const count = Math.max(a.parts.length, b.parts.length)
    const parts = new Array<Part>(count)
    for (let i = 0; i < count; i++) {
      const own = a.parts[a.parts.length === 1 ? 0 : i]
      const other = b.parts[b.parts.length === 1 ? 0 : i]
      parts[i] = this.arithmetic.binary(operator, name, own, other)
    }
    const result = isComparison(operator) ? 'bool' : name
    return { type: isVector ? vectorOf(result, isVector.size) : scalar(result), parts }
  }

  call(expression: Extract<Expression, { kind: 'call' }>): Value {
    const own = this.#source.functions.get(expression.type.name)
    if (!own) return callBuiltin(this, expression)
    const given = expression.arguments.map((argument) =>
      this.hold(this.values.concrete(this.value(argument))),
    )
    return this.inline(own, given)
  }

  /** Computes a word for each invocation by itself, one after the other. */
  eachInvocation(given: Value, make: (one: Value) => Value): Value {
    if (this.values.lanes === 1) return make(given)
    const name = elementOf(given.type)!
    const vector = this.arithmetic.vector(name, given.parts[0])
    const { mask } = this
    const words = Array.from({ length: laneCount }, (_, lane): Uniform => {
      const local = this.code.local(concrete(name) === 'f32' ? 'f32' : 'i32')
      const run = () => {
        this.mask = null
        const own = { type: given.type, parts: [this.arithmetic.lane(name, vector, lane)] }
        const [part] = make(own).parts
        this.code.set(local, this.arithmetic.word(name, part as Uniform))
      }
      if (mask === null) run()
      else this.code.if(this.code.extractLane('i32', mask, lane), run)
      return { kind: 'scalar', local }
    })
    this.mask = mask
    return {
      type: given.type,
      parts: [{ kind: 'vector', local: this.arithmetic.gather(name, words) }],
    }
  }
}

function commonName(a: ScalarName, b: ScalarName): ScalarName {
  if (a === b) return a
  if (a === 'int') return b
  if (b === 'int') return a
  return a === 'float' ? b : a
}
