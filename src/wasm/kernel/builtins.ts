import type { Expression, FunctionDeclaration, TypeName } from '../wgsl/syntax.ts'
import { shaderError } from '../wgsl/tokens.ts'
import { type Arithmetic, constant, type Part } from './arithmetic.ts'
import type { Place } from './place.ts'
import { power } from './power.ts'
import { type PreludeName, preludeFunction } from './prelude.ts'
import { concrete, isAbstract, type ScalarName, scalar, type Type, vectorOf } from './types.ts'
import { elementOf, type Value, type Values } from './value.ts'

type Call = Extract<Expression, { kind: 'call' }>

/** The part of a kernel's writer that calls need. */
export interface CallWriter {
  readonly arithmetic: Arithmetic
  readonly values: Values
  type(name: TypeName, line: number): Type
  value(expression: Expression): Value
  place(expression: Expression): Place | undefined
  load(place: Place): Value
  loadFourTimes(place: Place): Value | undefined
  store(place: Place, value: Value): void
  hold(value: Value): Value
  combine(operator: string, left: Value, right: Value, line: number): Value
  inline(own: FunctionDeclaration, given: readonly Value[]): Value
  eachInvocation(given: Value, make: (one: Value) => Value): Value
}

/** Functions of f32 that WebAssembly has. */
const unary: Readonly<Record<string, 'ceil' | 'floor' | 'trunc' | 'nearest' | 'sqrt'>> = {
  ceil: 'ceil',
  floor: 'floor',
  trunc: 'trunc',
  round: 'nearest',
  sqrt: 'sqrt',
}
/** Those that the prelude has. */
const inPrelude: Readonly<Record<string, PreludeName>> = { exp: 'exp_of_f32', log: 'log_of_f32' }

/** A call of what WGSL itself has: a constructor or a function. errors: `gpu.compile` for one that no kernel uses. */
export function callBuiltin(writer: CallWriter, call: Call): Value {
  const { name } = call.type
  if (name === 'workgroupBarrier' || name === 'storageBarrier')
    throw shaderError(call.line, `${name} in a place where invocations cannot wait for each other`)
  if (name.startsWith('atomic')) return atomic(writer, call)
  const [first] = call.arguments
  if (name === 'vec4' && call.arguments.length === 1 && first.kind === 'index') {
    const place = writer.place(first)
    const four = place && writer.loadFourTimes(place)
    if (four) return construct(writer, call, [four])
  }
  const given = call.arguments.map((argument) => writer.value(argument))
  return functionOf(writer, call, given) ?? construct(writer, call, given)
}

function functionOf(
  writer: CallWriter,
  { type: { name, arguments: types }, line }: Call,
  given: readonly Value[],
): Value | undefined {
  const { arithmetic, values } = writer
  const each = (
    make: (name: ScalarName, ...parts: Part[]) => Part,
    all = ofOneType(writer, given),
  ): Value => {
    const [first] = all
    const element = elementOf(first.type)!
    const count = Math.max(...all.map(({ parts }) => parts.length))
    const parts = Array.from({ length: count }, (_, i) =>
      make(element, ...all.map((one) => one.parts[one.parts.length === 1 ? 0 : i])),
    )
    const isVector = all.find((one) => one.type.kind === 'vector')
    return { type: isVector ? isVector.type : first.type, parts }
  }
  const floats = () => given.map((one) => values.as(one, 'f32'))
  /** A function of the prelude, for each word by itself or for four at once. */
  const prelude = (own: PreludeName, value: Value): Value => {
    const parts = value.parts.map(
      (part) =>
        writer.inline(preludeFunction(own), [{ type: scalar('f32'), parts: [part] }]).parts[0],
    )
    return { type: value.type, parts }
  }
  if (name in unary) return each((_, part) => arithmetic.unary(unary[name], part), floats())
  if (name in inPrelude) return prelude(inPrelude[name], floats()[0])
  switch (name) {
    case 'select': {
      const [no, yes] = ofOneType(writer, given.slice(0, 2))
      const [, , test] = given
      const element = elementOf(no.type)
      if (!element) throw shaderError(line, 'select needs numbers')
      const isPacked = values.isPacked(no.type)
      const parts = no.parts.map((part, i) =>
        arithmetic.select(element, part, yes.parts[i], test.parts[test.parts.length === 1 ? 0 : i]),
      )
      if (isPacked || no.parts.length === yes.parts.length) return { type: no.type, parts }
      break
    }
    case 'min':
    case 'max':
      return each((element, a, b) => arithmetic.binary(name, element, a, b))
    case 'clamp':
      return each((element, x, low, high) =>
        arithmetic.binary('min', element, arithmetic.binary('max', element, x, low), high),
      )
    case 'abs':
      return each((element, x) =>
        concrete(element) === 'f32'
          ? arithmetic.unary('abs', x)
          : arithmetic.binary('max', element, x, arithmetic.negative(element, x)),
      )
    case 'sign':
      return each((element, x) => {
        const isMore = arithmetic.binary('>', element, x, constant(0))
        const isLess = arithmetic.binary('<', element, x, constant(0))
        const rest = arithmetic.select(element, constant(0), constant(-1), isLess)
        return arithmetic.select(element, rest, constant(1), isMore)
      })
    case 'fract':
      return each(
        (_, x) => arithmetic.binary('-', 'f32', x, arithmetic.unary('floor', x)),
        floats(),
      )
    case 'fma':
      return each(
        (_, a, b, c) => arithmetic.binary('+', 'f32', arithmetic.binary('*', 'f32', a, b), c),
        floats(),
      )
    case 'inverseSqrt':
      return each(
        (_, x) => arithmetic.binary('/', 'f32', constant(1), arithmetic.unary('sqrt', x)),
        floats(),
      )
    case 'pow':
      return each((_, a, b) => power(arithmetic, a, b), floats())
    case 'dot': {
      const [a, b] = ofOneType(writer, given)
      const products = values.components(writer.combine('*', a, b, line))
      const element = elementOf(a.type)!
      const sum = products.reduce((total, one) => arithmetic.binary('+', element, total, one))
      return { type: scalar(element), parts: [sum] }
    }
    case 'unpack2x16float': {
      const [{ parts }] = given
      const half = (bits: Part) =>
        writer.inline(preludeFunction('f32_of_half'), [{ type: scalar('u32'), parts: [bits] }])
          .parts[0]
      const low = arithmetic.binary('&', 'u32', parts[0], constant(0xffff))
      const high = arithmetic.binary('>>', 'u32', parts[0], constant(16))
      return { type: vectorOf('f32', 2), parts: [half(low), half(high)] }
    }
    case 'bitcast': {
      const wanted = writer.type(types[0] as { name: string; arguments: [] }, line)
      const [to, value] = [elementOf(wanted)!, values.concrete(given[0])]
      const from = elementOf(value.type)!
      return {
        type: wanted,
        parts: value.parts.map((part) => arithmetic.convert(from, to, part, true)),
      }
    }
    case 'any':
    case 'all': {
      const operator = name === 'any' ? '||' : '&&'
      const parts = values.components(given[0])
      return {
        type: scalar('bool'),
        parts: [parts.reduce((a, b) => arithmetic.binary(operator, 'bool', a, b))],
      }
    }
  }
  return undefined
}

/** Literals among arguments get the others' type. */
function ofOneType(writer: CallWriter, given: readonly Value[]): Value[] {
  const names = given.map(({ type }) => elementOf(type)).filter((name) => name !== undefined)
  const known = names.find((name) => !isAbstract(name)) ?? (names.includes('float') ? 'f32' : 'i32')
  return given.map((one) => writer.values.as(one, known))
}

/** A value of a type, from its parts or from one of another type. */
function construct(writer: CallWriter, { type: name, line }: Call, given: readonly Value[]): Value {
  const { values, arithmetic } = writer
  const short = /^vec([234])$/.exec(name.name)
  const isOpen = (short || name.name === 'array') && name.arguments.length === 0
  const type: Type = isOpen
    ? openType(writer, Number(short?.[1] ?? 0), given)
    : writer.type(name, line)
  if (given.length === 0) return values.zero(type)
  if (type.kind === 'scalar') {
    const from = elementOf(given[0].type)!
    return { type, parts: [arithmetic.convert(from, type.name, given[0].parts[0], false)] }
  }
  if (type.kind === 'vector') {
    const words = given.flatMap((one) => {
      const from = elementOf(one.type)!
      return values.components(one).map((part) => arithmetic.convert(from, type.of, part, false))
    })
    if (given.length === 1 && given[0].type.kind === 'vector' && values.isPacked(type)) {
      const from = elementOf(given[0].type)!
      return { type, parts: [arithmetic.convert(from, type.of, given[0].parts[0], false)] }
    }
    return values.ofComponents(
      type.of,
      words.length === 1 ? new Array(type.size).fill(words[0]) : words,
    )
  }
  const types =
    type.kind === 'array' ? given.map(() => type.of) : type.fields.map((field) => field.type)
  const parts = given.flatMap((one, i) => {
    const element = elementOf(types[i])
    return (element ? values.as(one, element) : one).parts
  })
  return { type, parts }
}

function openType(writer: CallWriter, size: number, given: readonly Value[]): Type {
  const [first] = ofOneType(writer, given)
  const element = elementOf(first.type)!
  if (size > 0) return vectorOf(element, size)
  return { kind: 'array', of: writer.values.concrete(first).type, count: given.length }
}

/** A workgroup runs on one thread, so that its atomics need be none; those of four invocations are done one after the other. */
function atomic(
  writer: CallWriter,
  { type: { name }, arguments: [target, ...rest], line }: Call,
): Value {
  const place = writer.place(target)
  if (place?.kind !== 'memory') throw shaderError(line, `${name} needs a variable of the workgroup`)
  const type = place.type
  const element = elementOf(type)!
  if (name === 'atomicLoad') return writer.load(place)
  const given = writer.values.as(writer.value(rest[0]), element)
  if (name === 'atomicStore') {
    writer.store(place, given)
    return { type, parts: [] }
  }
  const operator = (
    { atomicAdd: '+', atomicMax: 'max', atomicMin: 'min' } as Record<string, string>
  )[name]
  if (!operator) throw shaderError(line, `"${name}" is not supported`)
  return writer.eachInvocation(given, (one) => {
    const before = writer.hold(writer.load(place))
    writer.store(place, writer.combine(operator, before, one, line))
    return before
  })
}
