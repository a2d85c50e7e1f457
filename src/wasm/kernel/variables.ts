import type { FunctionCode, Local } from '../assemble.ts'
import { shaderError } from '../wgsl/tokens.ts'
import {
  Arithmetic,
  constant,
  isUniform,
  type laneCount,
  type Part,
  type Uniform,
} from './arithmetic.ts'
import { Memory } from './memory.ts'
import type { Mask, Place } from './place.ts'
import { bytesOf, concrete, fieldOffset, scalar, swizzle, type Type, vectorOf } from './types.ts'
import { elementOf, type Value, Values } from './value.ts'

/** Findings about the variables of a kernel, by where they are: it is written again with that known. */
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

/** Gives memory for one thread's workgroup variables and arrays. */
export interface Scratch {
  /** Returns the address from the scratch memory's begin on. */
  take(bytes: number): number
}

/** Inputs of a writer. */
export interface WriterOptions {
  readonly code: FunctionCode
  readonly lanes: 1 | typeof laneCount
  readonly findings: Findings
  readonly scratch: Scratch
  /** Where a thread's scratch memory begins. */
  readonly scratchBase: Local<'i32'>
  /** Places of the module. */
  readonly global: Map<string, Place>
}

/** The variables in reach of what is being written, and the code that reads and writes them. */
export abstract class Variables {
  readonly code: FunctionCode
  readonly arithmetic: Arithmetic
  readonly values: Values
  readonly #memory: Memory
  readonly #scratch: Scratch
  readonly #scratchBase: Local<'i32'>
  protected readonly findings: Findings
  protected scopes: Map<string, Place>[]
  /** The calls that led here. */
  protected path: string
  protected calls = 0
  /** Who runs. */
  mask: Mask = null
  /** The variable of a loop while it moves on: those who have left the loop never read it. */
  protected counter: Place | undefined
  /** The number of the invocation in its workgroup, or the first of four. */
  invocation: Part = constant(0)
  /** True if anything has been written to memory. */
  hasStored = false

  constructor({ code, lanes, findings, scratch, scratchBase, global }: WriterOptions) {
    this.code = code
    this.arithmetic = new Arithmetic(code)
    this.values = new Values(this.arithmetic, lanes)
    this.#memory = new Memory(this.values)
    this.#scratch = scratch
    this.#scratchBase = scratchBase
    this.findings = findings
    this.scopes = [global]
    this.path = lanes === 1 ? 'one' : 'four'
  }

  within<T>(run: () => T): T {
    this.scopes.push(new Map())
    try {
      return run()
    } finally {
      this.scopes.pop()
    }
  }

  bind(name: string, place: Place): void {
    this.scopes.at(-1)!.set(name, place)
  }

  /** Returns the place that a name stands for. errors: `gpu.compile`. */
  find(name: string, line = 0): Place {
    for (let i = this.scopes.length - 1; i >= 0; i--) {
      const place = this.scopes[i].get(name)
      if (place) return place
    }
    throw shaderError(line, `unknown name "${name}"`)
  }

  /** Begins a function's scope, with its arguments; `run` may find what the module has beside them. */
  function<T>(run: () => T): T {
    const [outerScopes, outerPath] = [this.scopes, this.path]
    this.path = `${outerPath}/${this.calls++}`
    this.scopes = [this.scopes[0], new Map()]
    try {
      return run()
    } finally {
      this.scopes = outerScopes
      this.path = outerPath
    }
  }

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
      ? // The vector that it was taken from may change.
        { ...part, local: this.code.copy(part.local), from: undefined }
      : { kind: 'vector', local: this.code.copy(part.local) }
  }

  /** Declares a variable. */
  variable(name: string, type: Type, line: number, value: Value | undefined): Place {
    const key = `${this.path}:${line}:${name}`
    const place =
      type.kind === 'array' && this.findings.has(key) ? this.array(type) : this.locals(key, type)
    this.store(place, value ?? this.values.zero(type), true)
    return place
  }

  /** Separate memory for each invocation. */
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

  protected locals(key: string, type: Type): Place {
    const locals = this.values.partTypes(type).map((name, i) => {
      const isVector =
        this.values.isPacked(type) ||
        this.#isPackedPart(type, i) ||
        this.findings.has(`${key}#${i}`)
      return this.code.local(isVector ? 'v128' : concrete(name) === 'f32' ? 'f32' : 'i32')
    })
    return { kind: 'locals', type, locals, key, first: 0, mask: this.mask }
  }

  /** Tells whether that part of an array or struct is a packed vector. */
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
        return this.#memory.load(place.type, place.address, place.wordBytes)
      case 'frame':
        return this.load(this.ofInvocation(place))
      case 'computed':
        return place.value()
      case 'components':
        return this.#select(this.load(place.of), place.at)
    }
  }

  /** A word of memory in each word of a vector, by one instruction; undefined where there is none for that. */
  loadFourTimes(place: Place): Value | undefined {
    if (place.kind !== 'memory' || place.type.kind !== 'scalar') return undefined
    const type = vectorOf(place.type.name, 4)
    if (!this.values.isPacked(type) || !isUniform(place.address)) return undefined
    return { type, parts: [this.#memory.loadFourTimes(place.address)] }
  }

  protected ofInvocation({ type, offset, count }: Extract<Place, { kind: 'frame' }>) {
    const base: Part = { kind: 'scalar', local: this.#scratchBase, multiple: 1 }
    const begin = this.arithmetic.binary('+', 'u32', base, constant(offset))
    const own = this.arithmetic.binary('*', 'u32', this.invocation, constant(4))
    const address = this.arithmetic.binary('+', 'u32', begin, own)
    return { kind: 'memory', type, address, wordBytes: 4 * count } as const
  }

  /** Components of a vector by their numbers, one of which may be computed. */
  #select(of: Value, at: readonly Part[]): Value {
    const name = elementOf(of.type)!
    const one = (index: Part): Part => {
      if (index.kind === 'constant') return this.values.component(of, index.value)
      const all = this.values.components(of)
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
    const value = element ? this.spread(this.values.as(given, element), type) : given
    if (place.kind === 'locals') this.#storeLocals(place, value, isNew)
    else if (place.kind === 'memory') {
      this.hasStored = true
      this.#memory.store(value, place.address, place.wordBytes, isNew ? null : this.mask)
    } else if (place.kind === 'frame')
      this.#memory.store(
        value,
        this.ofInvocation(place).address,
        4 * place.count,
        isNew ? null : this.mask,
      )
    else if (place.kind === 'components') this.#storeComponents(place, value)
    else throw shaderError(0, 'a value is not a variable')
  }

  /** A scalar as a vector of that type. */
  protected spread(value: Value, type: Type): Value {
    if (type.kind !== 'vector' || value.type.kind !== 'scalar') return value
    return { type, parts: new Array(this.values.partCount(type)).fill(value.parts[0]) }
  }

  #storeLocals(place: Extract<Place, { kind: 'locals' }>, value: Value, isNew: boolean): void {
    const names = this.values.partTypes(place.type)
    const isBlended = !isNew && place.mask !== this.mask && place !== this.counter
    // All are read before one is written: the value may be made of them.
    const next = place.locals.map((local, i): Local | undefined => {
      const part = value.parts[i]
      if (local.type !== 'v128') {
        if (isUniform(part) && !isBlended) return this.arithmetic.word(names[i], part)
        this.findings.add(`${place.key}#${place.first + i}`)
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

  protected member(of: Place, name: string, line: number): Place {
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

  protected element(of: Place, at: Part, line: number): Place {
    const type = this.typeOfPlace(of)
    if (type.kind === 'vector') return { kind: 'components', of, at: [at] }
    if (type.kind !== 'array') throw shaderError(line, 'only arrays and vectors have elements')
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
      this.findings.add(of.key)
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
}
