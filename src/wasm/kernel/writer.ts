import type { FunctionCode, Label, Local } from '../assemble.ts'
import type {
  Declaration,
  Expression,
  FunctionDeclaration,
  Shader,
  Statement,
} from '../wgsl/syntax.ts'
import { shaderError } from '../wgsl/tokens.ts'
import {
  Arithmetic,
  asWord,
  constant,
  isComparison,
  isUniform,
  laneCount,
  type Part,
  type Uniform,
} from './arithmetic.ts'
import { callBuiltin } from './builtins.ts'
import { Memory } from './memory.ts'
import type { Mask, Place } from './place.ts'
import {
  bytesOf,
  concrete,
  fieldOffset,
  isAbstract,
  type ScalarName,
  scalar,
  swizzle,
  type Type,
  typeOf,
  vectorOf,
} from './types.ts'
import { elementOf, type Value, Values } from './value.ts'

/** What has been found out about the variables of a kernel, by where they are: it is written again with that known. */
export class Findings {
  /** Variables that differ between invocations, loops that these leave one by one, arrays with computed indices. */
  readonly #marks = new Set<string>()
  hasChanged = false

  has(key: string): boolean {
    return this.#marks.has(key)
  }

  add(key: string): void {
    if (this.#marks.has(key)) return
    this.#marks.add(key)
    this.hasChanged = true
  }
}

/** A loop or a function's body, which its statements may leave. */
interface Frame {
  readonly kind: 'loop' | 'function'
  readonly end: Label
  /** Of a loop: the end of its turn. */
  readonly turn?: Label
  /** Who ran at its begin; of a loop that invocations leave one by one, in each turn. */
  mask: Mask
  /** Who has left for good, where not all do at once. */
  readonly gone?: Local<'v128'>
  /** Who has left this turn. */
  readonly skipped?: Local<'v128'>
  readonly result?: Place
  readonly key: string
}

export interface KernelSource {
  readonly shader: Shader
  readonly functions: ReadonlyMap<string, FunctionDeclaration>
}

/** Gives memory for one thread's workgroup variables and arrays. */
export interface Scratch {
  /** Returns the address from the scratch memory's begin on. */
  take(bytes: number): number
}

/** Writes the code of a kernel's body for one invocation, or for four neighbouring ones at once. */
export class Writer {
  readonly code: FunctionCode
  readonly arithmetic: Arithmetic
  readonly values: Values
  readonly memory: Memory
  readonly #source: KernelSource
  readonly #findings: Findings
  readonly #scratch: Scratch
  readonly #scratchBase: Local<'i32'>
  #scopes: Map<string, Place>[]
  #frames: Frame[] = []
  mask: Mask = null
  #path: string
  #calls = 0
  /** The variable of a loop while it moves on: those who have left the loop never read it. */
  #counter: Place | undefined
  /** The number of the invocation in its workgroup, or the first of four. */
  invocation: Part = constant(0)
  /** Whether anything has been written to memory. */
  hasStored = false
  /** Of four invocations of which not all do the same at the begin: where they are computed one by one. */
  bail: Label | undefined
  hasBailed = false

  constructor(
    code: FunctionCode,
    lanes: 1 | typeof laneCount,
    source: KernelSource,
    findings: Findings,
    scratch: Scratch,
    scratchBase: Local<'i32'>,
    global: Map<string, Place>,
  ) {
    this.code = code
    this.arithmetic = new Arithmetic(code)
    this.values = new Values(this.arithmetic, lanes)
    this.memory = new Memory(this.values)
    this.#source = source
    this.#findings = findings
    this.#scratch = scratch
    this.#scratchBase = scratchBase
    this.#scopes = [global]
    this.#path = lanes === 1 ? 'one' : 'four'
  }

  // --- scopes ---

  within<T>(run: () => T): T {
    this.#scopes.push(new Map())
    try {
      return run()
    } finally {
      this.#scopes.pop()
    }
  }

  bind(name: string, place: Place): void {
    this.#scopes.at(-1)!.set(name, place)
  }

  /** What a name stands for. errors: `gpu.compile`. */
  find(name: string, line = 0): Place {
    for (let i = this.#scopes.length - 1; i >= 0; i--) {
      const place = this.#scopes[i].get(name)
      if (place) return place
    }
    throw shaderError(line, `unknown name "${name}"`)
  }

  type(name: Parameters<typeof typeOf>[0], line: number): Type {
    return typeOf(name, this.#source.shader, line, (count) => {
      const [part] = this.value(count).parts
      if (part.kind === 'constant') return part.value
      throw shaderError(line, 'the count of an array must be constant')
    })
  }

  // --- variables ---

  /** A value that does not change with the variables that it was read from. */
  hold({ type, parts }: Value): Value {
    return {
      type,
      parts: parts.map((part) =>
        part.kind === 'scalar' || part.kind === 'vector' ? this.#copy(part) : part,
      ),
    }
  }

  #copy(part: Extract<Part, { kind: 'scalar' | 'vector' }>): Part {
    return part.kind === 'scalar'
      ? { ...part, local: this.code.copy(part.local) }
      : { kind: 'vector', local: this.code.copy(part.local) }
  }

  /** Declares a variable. */
  variable(name: string, type: Type, line: number, value: Value | undefined): Place {
    const key = `${this.#path}:${line}:${name}`
    const place =
      type.kind === 'array' && this.#findings.has(key) ? this.array(type) : this.#locals(key, type)
    this.store(place, value ?? this.values.zero(type), true)
    return place
  }

  /** Memory for each invocation of its own. */
  array(type: Type): Place {
    const { lanes } = this.values
    const at = this.#scratch.take(bytesOf(type) * lanes)
    const base = this.arithmetic.binary(
      '+',
      'u32',
      { kind: 'scalar', local: this.#scratchBase },
      constant(at),
    ) as Uniform
    const address: Part = lanes === 1 ? base : { kind: 'linear', base, stride: 4 }
    return { kind: 'memory', type, address, wordBytes: 4 * lanes }
  }

  #locals(key: string, type: Type): Place {
    const locals = this.values.partTypes(type).map((name, i) => {
      const isVector =
        this.values.isPacked(type) ||
        this.#isPackedPart(type, i) ||
        this.#findings.has(`${key}#${i}`)
      return this.code.local(isVector ? 'v128' : concrete(name) === 'f32' ? 'f32' : 'i32')
    })
    return { kind: 'locals', type, locals, key, first: 0, mask: this.mask }
  }

  /** Whether that part of an array or struct is a packed vector. */
  #isPackedPart(type: Type, at: number): boolean {
    if (type.kind === 'array') {
      const count = this.values.partCount(type.of)
      return this.values.isPacked(type.of) || this.#isPackedPart(type.of, at % count)
    }
    if (type.kind !== 'struct') return false
    let rest = at
    for (const field of type.fields) {
      const count = this.values.partCount(field.type)
      if (rest < count)
        return this.values.isPacked(field.type) || this.#isPackedPart(field.type, rest)
      rest -= count
    }
    return false
  }

  typeOfPlace(place: Place): Type {
    if (place.kind === 'value') return place.value.type
    if (place.kind !== 'components') return place.type
    const of = elementOf(this.typeOfPlace(place.of))!
    return place.at.length === 1 ? scalar(of) : vectorOf(of, place.at.length)
  }

  load(place: Place): Value {
    switch (place.kind) {
      case 'value':
        return place.value
      case 'locals':
        return {
          type: place.type,
          parts: place.locals.map((local) =>
            local.type === 'v128'
              ? { kind: 'vector', local: local as Local<'v128'> }
              : { kind: 'scalar', local: local as Local<'i32' | 'f32'> },
          ),
        }
      case 'memory':
        return this.memory.load(place.type, place.address, place.wordBytes)
      case 'frame':
        return this.load(this.#ofInvocation(place))
      case 'computed':
        return place.value()
      case 'components':
        return this.#select(this.load(place.of), place.at)
    }
  }

  #ofInvocation({ type, offset, count }: Extract<Place, { kind: 'frame' }>) {
    const base: Part = { kind: 'scalar', local: this.#scratchBase, multiple: 1 }
    const begin = this.arithmetic.binary('+', 'u32', base, constant(offset))
    const own = this.arithmetic.binary('*', 'u32', this.invocation, constant(4))
    const address = this.arithmetic.binary('+', 'u32', begin, own)
    return { kind: 'memory', type, address, wordBytes: 4 * count } as const
  }

  /** Components of a vector by their numbers, one of which may be computed. */
  #select(of: Value, at: readonly Part[]): Value {
    const name = elementOf(of.type)!
    const all = this.values.components(of)
    const one = (index: Part): Part => {
      if (index.kind === 'constant') return all[index.value]
      return all
        .slice(1)
        .reduce(
          (chosen, part, i) =>
            this.arithmetic.select(
              name,
              chosen,
              part,
              this.arithmetic.binary('==', 'u32', index, constant(i + 1)),
            ),
          all[0],
        )
    }
    if (at.length === 1) return { type: scalar(name), parts: [one(at[0])] }
    return this.values.ofComponents(name, at.map(one))
  }

  /** `isNew`: it held nothing before. */
  store(place: Place, given: Value, isNew = false): void {
    const type = this.typeOfPlace(place)
    const element = elementOf(type)
    const value = element ? this.#spread(this.values.as(given, element), type) : given
    if (place.kind === 'locals') this.#storeLocals(place, value, isNew)
    else if (place.kind === 'memory') {
      this.hasStored = true
      this.memory.store(value, place.address, place.wordBytes, isNew ? null : this.mask)
    } else if (place.kind === 'frame')
      this.memory.store(
        value,
        this.#ofInvocation(place).address,
        4 * place.count,
        isNew ? null : this.mask,
      )
    else if (place.kind === 'components') this.#storeComponents(place, value)
    else throw shaderError(0, 'a value is not a variable')
  }

  /** A scalar as a vector of that type. */
  #spread(value: Value, type: Type): Value {
    if (type.kind !== 'vector' || value.type.kind !== 'scalar') return value
    return { type, parts: new Array(this.values.partCount(type)).fill(value.parts[0]) }
  }

  #storeLocals(place: Extract<Place, { kind: 'locals' }>, value: Value, isNew: boolean): void {
    const names = this.values.partTypes(place.type)
    const isBlended = !isNew && place.mask !== this.mask && place !== this.#counter
    // All are read before one is written: the value may be made of them.
    const next = place.locals.map((local, i): Local | undefined => {
      const part = value.parts[i]
      if (local.type !== 'v128') {
        if (isUniform(part) && !isBlended) return this.arithmetic.word(names[i], part)
        this.#findings.add(`${place.key}#${place.first + i}`)
        return undefined
      }
      const vector = this.arithmetic.vector(names[i], part)
      return isBlended
        ? this.code.v128('v128.bitselect', vector, local as Local<'v128'>, this.mask!)
        : vector
    })
    const held = next.length > 1 ? next.map((one) => one && this.code.copy(one)) : next
    for (const [i, one] of held.entries()) if (one) this.code.set(place.locals[i], one)
  }

  #storeComponents({ of, at }: Extract<Place, { kind: 'components' }>, value: Value): void {
    const type = this.typeOfPlace(of)
    const name = elementOf(type)!
    if (of.kind === 'memory') {
      for (const [i, part] of this.values.components(value).entries()) {
        const offset = this.arithmetic.binary('*', 'u32', at[i], constant(of.wordBytes))
        const address = this.arithmetic.binary('+', 'u32', of.address, offset)
        const word: Place = { kind: 'memory', type: scalar(name), address, wordBytes: of.wordBytes }
        this.store(word, { type: scalar(name), parts: [part] })
      }
      return
    }
    const all = this.values.components(this.load(of))
    for (const [i, part] of this.values.components(value).entries()) {
      const index = at[i]
      for (let n = 0; n < all.length; n++) {
        if (index.kind === 'constant') {
          if (index.value === n) all[n] = part
        } else
          all[n] = this.arithmetic.select(
            name,
            all[n],
            part,
            this.arithmetic.binary('==', 'u32', index, constant(n)),
          )
      }
    }
    this.store(of, this.values.ofComponents(name, all))
  }

  // --- expressions ---

  /** The place that an expression names; undefined for one that has none. */
  place(expression: Expression): Place | undefined {
    if (expression.kind === 'name') {
      const found = this.find(expression.name, expression.line)
      if (found.kind === 'computed') return { kind: 'value', value: found.value() }
      return found.kind === 'frame' ? this.#ofInvocation(found) : found
    }
    if (expression.kind === 'index') {
      const of = this.place(expression.of)
      return of && this.#element(of, expression.index)
    }
    if (expression.kind !== 'member') return undefined
    const of = this.place(expression.of)
    return of && this.#member(of, expression.name, expression.line)
  }

  #member(of: Place, name: string, line: number): Place {
    const type = this.typeOfPlace(of)
    if (type.kind === 'vector') {
      const at = swizzle(name)
      if (!at) throw shaderError(line, `a vector has no "${name}"`)
      return { kind: 'components', of, at: at.map(constant) }
    }
    if (type.kind !== 'struct') throw shaderError(line, `"${name}" of a value without fields`)
    const at = type.fields.findIndex((field) => field.name === name)
    if (at < 0) throw shaderError(line, `${type.name} has no field "${name}"`)
    if (of.kind === 'memory') {
      const words = fieldOffset(type, name) / 4
      const address = this.arithmetic.binary('+', 'u32', of.address, constant(words * of.wordBytes))
      return { ...of, type: type.fields[at].type, address }
    }
    const first = type.fields
      .slice(0, at)
      .reduce((sum, field) => sum + this.values.partCount(field.type), 0)
    return this.#slice(of, type.fields[at].type, first)
  }

  #slice(of: Place, type: Type, first: number): Place {
    const end = first + this.values.partCount(type)
    if (of.kind === 'value')
      return { kind: 'value', value: { type, parts: of.value.parts.slice(first, end) } }
    if (of.kind !== 'locals') throw shaderError(0, 'components have no parts')
    return { ...of, type, locals: of.locals.slice(first, end), first: of.first + first }
  }

  #element(of: Place, index: Expression): Place {
    const type = this.typeOfPlace(of)
    const [at] = this.value(index).parts
    if (type.kind === 'vector') return { kind: 'components', of, at: [at] }
    if (type.kind !== 'array')
      throw shaderError(index.line, 'only arrays and vectors have elements')
    if (of.kind === 'memory') {
      const bytes = (bytesOf(type.of) / 4) * of.wordBytes
      const offset = this.arithmetic.binary('*', 'u32', at, constant(bytes))
      const address = this.#maskedAddress(
        this.arithmetic.binary('+', 'u32', of.address, offset),
        of,
      )
      return { ...of, type: type.of, address }
    }
    const count = this.values.partCount(type.of)
    if (at.kind === 'constant') return this.#slice(of, type.of, at.value * count)
    if (of.kind === 'locals') {
      this.#findings.add(of.key)
      return this.#slice(of, type.of, 0)
    }
    const all = this.load(of).parts
    const names = this.values.partTypes(type.of)
    const parts = names.map((name, word) => {
      let chosen: Part = all[word]
      for (let i = 1; i < (type.count ?? 0); i++) {
        const isIt = this.arithmetic.binary('==', 'u32', at, constant(i))
        chosen = this.arithmetic.select(name, chosen, all[i * count + word], isIt)
      }
      return chosen
    })
    return { kind: 'value', value: { type: type.of, parts } }
  }

  /** Where invocations do not run, what they would read may lie anywhere. */
  #maskedAddress(address: Part, { address: array }: Extract<Place, { kind: 'memory' }>): Part {
    if (address.kind !== 'vector' || this.mask === null) return address
    const base = this.arithmetic.vector('u32', array)
    const local = this.code.v128('v128.bitselect', address.local, base, this.mask)
    return { kind: 'vector', local }
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
        ? this.#element(held, (expression as { index: Expression }).index)
        : this.#member(held, (expression as { name: string }).name, line),
    )
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
      const key = `${this.#path}:logic${this.#calls++}`
      if (this.#findings.has(key)) {
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
        else this.#findings.add(key)
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
    const [l, r] = [elementOf(left.type), elementOf(right.type)]
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
    const parts = Array.from({ length: count }, (_, i) =>
      this.arithmetic.binary(
        operator,
        name,
        a.parts[a.parts.length === 1 ? 0 : i],
        b.parts[b.parts.length === 1 ? 0 : i],
      ),
    )
    const result = isComparison(operator) ? 'bool' : name
    return { type: isVector ? vectorOf(result, isVector.size) : scalar(result), parts }
  }

  call(expression: Extract<Expression, { kind: 'call' }>): Value {
    const own = this.#source.functions.get(expression.type.name)
    if (!own) return callBuiltin(this, expression)
    const given = expression.arguments.map((argument) => this.#argument(argument))
    return this.inline(own, given)
  }

  /** A variable that a pointer names stays one. */
  #argument(argument: Expression): Value {
    return this.hold(this.values.concrete(this.value(argument)))
  }

  /** Writes a function's body in place of its call. */
  inline(own: FunctionDeclaration, given: readonly Value[]): Value {
    return this.function(() => {
      for (const [i, { name, type }] of own.parameters.entries()) {
        const wanted = this.type(type, own.line)
        const element = elementOf(wanted)
        const value = element ? this.values.as(given[i], element) : given[i]
        this.bind(name, { kind: 'value', value: { ...value, type: wanted } })
      }
      return this.#body(own)
    })
  }

  #body(own: FunctionDeclaration): Value {
    const type = own.result && this.type(own.result, own.line)
    const last = own.body.at(-1)
    const isStraight = own.body.every((one) => one === last || !hasReturn(one))
    if (isStraight && type && last?.kind === 'return') {
      this.statements(own.body.slice(0, -1))
      const value = this.values.as(this.value(last.value!), elementOf(type) ?? 'f32')
      return this.hold({ ...this.#spread(value, type), type })
    }
    if (isStraight && !type && (!last || !hasReturn(last))) {
      this.statements(own.body)
      return { type: scalar('bool'), parts: [] }
    }
    const key = `${this.#path}:result`
    const result = type && this.#locals(key, type)
    const outer = this.mask
    const gone = this.#findings.has(`${key}:gone`) ? this.#empty() : undefined
    this.code.block((end) => {
      this.#frames.push({ kind: 'function', end, mask: outer, gone, result, key })
      this.statements(own.body)
      this.#frames.pop()
    })
    this.mask = outer
    return result ? this.load(result) : { type: scalar('bool'), parts: [] }
  }

  #empty(): Local<'v128'> {
    const none = this.code.local('v128')
    this.code.set(none, this.code.v128Const([0, 0, 0, 0]))
    return none
  }

  /** A function of the prelude. */
  preludeFunction(name: string): FunctionDeclaration {
    return this.#source.functions.get(name)!
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

  // --- statements ---

  statements(all: readonly Statement[]): void {
    for (const one of all) this.statement(one)
  }

  statement(one: Statement): void {
    switch (one.kind) {
      case 'let':
      case 'const':
      case 'var':
        this.declare(one)
        return
      case 'assign':
        this.#assign(one)
        return
      case 'if':
        this.#if(one)
        return
      case 'for':
        this.#for(one)
        return
      case 'block':
        this.within(() => this.statements(one.body))
        return
      case 'call':
        this.call(one.call)
        return
      default:
        this.#leave(one)
    }
  }

  declare({ kind, name, type, value, line }: Declaration): void {
    const wanted = type && this.type(type, line)
    const element = wanted && elementOf(wanted)
    const given = value && this.value(value)
    const typed =
      given &&
      (element
        ? this.values.as(given, element)
        : kind === 'const'
          ? given
          : this.values.concrete(given))
    if (kind === 'var') this.bind(name, this.variable(name, wanted ?? typed!.type, line, typed))
    else this.bind(name, { kind: 'value', value: this.hold(typed!) })
  }

  #assign({ target, operator, value, line }: Extract<Statement, { kind: 'assign' }>): void {
    if (target.kind === 'name' && target.name === '_') {
      this.value(value)
      return
    }
    const place = this.place(target)
    if (!place) throw shaderError(line, 'expected a variable')
    const given = this.value(value)
    this.store(place, operator ? this.combine(operator, this.load(place), given, line) : given)
  }

  #if({ condition, then, otherwise }: Extract<Statement, { kind: 'if' }>): void {
    const [test] = this.value(condition).parts
    const branch = (body: readonly Statement[]) => this.within(() => this.statements(body))
    if (test.kind === 'constant') {
      branch(test.value ? then : otherwise)
      return
    }
    if (isUniform(test)) {
      this.#ifUniform(this.arithmetic.word('bool', test) as Local<'i32'>, then, otherwise)
      return
    }
    const vector = this.arithmetic.vector('bool', test)
    if (this.bail && !this.hasStored && this.mask === null && this.#frames.length === 1) {
      this.#ifAlike(vector, then, otherwise)
      return
    }
    const outer = this.mask
    const run = (mask: Local<'v128'>, body: readonly Statement[]) => {
      if (body.length === 0) return
      this.code.if(this.code.i32('v128.any_true', mask), () => {
        this.mask = mask
        branch(body)
      })
    }
    const no = this.code.v128('v128.not', vector)
    run(this.both(outer, test), then)
    run(this.both(outer, { kind: 'vector', local: no }), otherwise)
    this.mask = this.#remaining(outer, [...then, ...otherwise])
  }

  /** Both branches begin with the same invocations; who has left in one of them runs no more. */
  #ifUniform(
    test: Local<'i32'>,
    then: readonly Statement[],
    otherwise: readonly Statement[],
  ): void {
    const outer = this.mask
    const branch = (body: readonly Statement[]) => () => {
      this.mask = outer
      this.within(() => this.statements(body))
    }
    this.code.if(test, branch(then), otherwise.length > 0 ? branch(otherwise) : undefined)
    this.mask = this.#remaining(outer, [...then, ...otherwise])
  }

  /** At the begin of a kernel: where invocations do not all do the same, they are computed one by one. */
  #ifAlike(test: Local<'v128'>, then: readonly Statement[], otherwise: readonly Statement[]): void {
    const isAny = this.code.i32('v128.any_true', test)
    const areAll = this.code.i32('i32x4.all_true', test)
    this.hasBailed = true
    this.code.branchIf(this.bail!, this.code.i32('i32.ne', isAny, areAll))
    this.#ifUniform(isAny, then, otherwise)
  }

  /** Of those that ran before branches, those that no jump in one of them has stopped. */
  #remaining(outer: Mask, branches: readonly Statement[]): Mask {
    if (!branches.some((one) => jumpsOut(one))) return outer
    let gone: Local<'v128'> | undefined
    const add = (more: Local<'v128'> | undefined) => {
      if (more) gone = gone ? this.code.v128('v128.or', gone, more) : more
    }
    for (let i = this.#frames.length - 1; i >= 0; i--) {
      const frame = this.#frames[i]
      add(frame.gone)
      add(frame.skipped)
      if (frame.kind === 'function') break
    }
    if (!gone) return outer
    return outer === null
      ? this.code.v128('v128.not', gone)
      : this.code.v128('v128.andnot', outer, gone)
  }

  #for(statement: Extract<Statement, { kind: 'for' }>): void {
    this.within(() => {
      const { first } = statement
      if (first) this.statement(first)
      const counter = first?.kind === 'var' ? this.find(first.name, first.line) : undefined
      const key = `${this.#path}:loop${this.#calls++}`
      const outer = this.mask
      const gone = this.#findings.has(`${key}:gone`) ? this.#empty() : undefined
      this.code.block((end) =>
        this.code.repeat((again) => {
          this.mask = gone ? this.#without(outer, gone) : outer
          if (gone) {
            const isOver = this.code.i32('i32.eqz', this.code.i32('v128.any_true', this.mask!))
            this.code.branchIf(end, isOver)
          }
          this.#turn(statement, key, end, gone, counter)
          this.code.branch(again)
        }),
      )
      this.mask = this.#remaining(outer, statement.body.filter(hasReturn))
    })
  }

  #without(mask: Mask, gone: Local<'v128'>): Local<'v128'> {
    return mask === null
      ? this.code.v128('v128.not', gone)
      : this.code.v128('v128.andnot', mask, gone)
  }

  #turn(
    { condition, next, body }: Extract<Statement, { kind: 'for' }>,
    key: string,
    end: Label,
    gone: Local<'v128'> | undefined,
    counter: Place | undefined,
  ): void {
    const skipped = this.#findings.has(`${key}:skipped`) ? this.#empty() : undefined
    const frame: Frame = { kind: 'loop', end, mask: this.mask, gone, skipped, key }
    if (condition) {
      const [test] = this.value(condition).parts
      if (isUniform(test))
        this.code.branchIf(
          end,
          this.code.i32('i32.eqz', this.arithmetic.word('bool', test) as Local<'i32'>),
        )
      else if (!gone) this.#findings.add(`${key}:gone`)
      else {
        const stop = this.both(frame.mask, this.arithmetic.not(test))
        this.code.set(gone, this.code.v128('v128.or', gone, stop))
        this.mask = frame.mask = this.both(frame.mask, test)
        this.code.branchIf(
          end,
          this.code.i32('i32.eqz', this.code.i32('v128.any_true', this.mask!)),
        )
      }
    }
    this.code.block((turn) => {
      this.#frames.push({ ...frame, turn })
      this.within(() => this.statements(body))
      this.#frames.pop()
    })
    this.mask = frame.mask
    this.#counter = counter
    if (next) this.statement(next)
    this.#counter = undefined
  }

  #leave(one: Extract<Statement, { kind: 'return' | 'break' | 'continue' }>): void {
    const kind = one.kind === 'return' ? 'function' : 'loop'
    const at = this.#frames.findLastIndex((frame) => frame.kind === kind)
    const frame = this.#frames[at]
    if (!frame) throw shaderError(one.line, `"${one.kind}" outside of a ${kind}`)
    if (one.kind === 'return' && one.value && frame.result) {
      const value = this.value(one.value)
      const isAll = frame.mask === this.mask
      this.store(frame.result, value, isAll)
    }
    if (frame.mask === this.mask) {
      this.code.branch(one.kind === 'continue' ? frame.turn! : frame.end)
      return
    }
    // Those that run now leave; the others go on.
    const mark = (which: 'gone' | 'skipped', of: Frame) => {
      const set = of[which]
      if (set && this.mask) this.code.set(set, this.code.v128('v128.or', set, this.mask))
      else this.#findings.add(`${of.key}:${which}`)
    }
    for (const inner of this.#frames.slice(at + 1)) if (inner.kind === 'loop') mark('gone', inner)
    mark(one.kind === 'continue' ? 'skipped' : 'gone', frame)
    this.mask = this.code.v128Const([0, 0, 0, 0])
  }

  /** Writes statements of a function that is no other's part; a return goes to `end`. */
  body(statements: readonly Statement[], end: Label, result?: Place): void {
    const key = `${this.#path}:body${this.#calls++}`
    const gone = this.#findings.has(`${key}:gone`) ? this.#empty() : undefined
    this.#frames = [{ kind: 'function', end, mask: null, gone, result, key }]
    this.statements(statements)
    this.#frames = []
    this.mask = null
  }

  /** Begins a function's scope, with its arguments; `run` may find what the module has beside them. */
  function<T>(run: () => T): T {
    const [outerScopes, outerPath] = [this.#scopes, this.#path]
    this.#path = `${outerPath}/${this.#calls++}`
    this.#scopes = [this.#scopes[0], new Map()]
    try {
      return run()
    } finally {
      this.#scopes = outerScopes
      this.#path = outerPath
    }
  }
}

function commonName(a: ScalarName, b: ScalarName): ScalarName {
  if (a === b) return a
  if (a === 'int') return b
  if (b === 'int') return a
  return a === 'float' ? b : a
}

export const hasReturn = (one: Statement): boolean => {
  switch (one.kind) {
    case 'return':
      return true
    case 'if':
      return [...one.then, ...one.otherwise].some(hasReturn)
    case 'for':
    case 'block':
      return one.body.some(hasReturn)
    default:
      return false
  }
}

/** Whether it may jump out of itself. */
export const jumpsOut = (one: Statement, isInLoop = false): boolean => {
  switch (one.kind) {
    case 'return':
      return true
    case 'break':
    case 'continue':
      return !isInLoop
    case 'if':
      return [...one.then, ...one.otherwise].some((inner) => jumpsOut(inner, isInLoop))
    case 'for':
      return one.body.some((inner) => jumpsOut(inner, true))
    case 'block':
      return one.body.some((inner) => jumpsOut(inner, isInLoop))
    default:
      return false
  }
}
