import type { Expression, Shader, TypeName } from '../wgsl/syntax.ts'
import { shaderError } from '../wgsl/tokens.ts'

/** `int` and `float`: of literals, which take the type of what they are used with. */
export type ScalarName = 'f32' | 'i32' | 'u32' | 'bool' | 'int' | 'float'

export interface ScalarType {
  readonly kind: 'scalar'
  readonly name: ScalarName
}
export interface VectorType {
  readonly kind: 'vector'
  readonly of: ScalarName
  readonly size: number
}
export interface ArrayType {
  readonly kind: 'array'
  readonly of: Type
  /** Null where the buffer decides. */
  readonly count: number | null
}
export interface StructType {
  readonly kind: 'struct'
  readonly name: string
  readonly fields: readonly { readonly name: string; readonly type: Type }[]
}
export type Type = ScalarType | VectorType | ArrayType | StructType

const scalarTypes: Readonly<Record<ScalarName, ScalarType>> = {
  f32: { kind: 'scalar', name: 'f32' },
  i32: { kind: 'scalar', name: 'i32' },
  u32: { kind: 'scalar', name: 'u32' },
  bool: { kind: 'scalar', name: 'bool' },
  int: { kind: 'scalar', name: 'int' },
  float: { kind: 'scalar', name: 'float' },
}
export const scalar = (name: ScalarName): ScalarType => scalarTypes[name]
export const vectorOf = (of: ScalarName, size: number): VectorType => ({ kind: 'vector', of, size })

const shortNames: Readonly<Record<string, ScalarName>> = { f: 'f32', i: 'i32', u: 'u32' }
const scalars: readonly string[] = ['f32', 'i32', 'u32', 'bool']

/** A type by its name in a shader. `count`: the value of a constant expression. */
export function typeOf(
  name: TypeName,
  shader: Shader,
  line: number,
  count: (expression: Expression) => number,
): Type {
  const of = (inner: TypeName) => typeOf(inner, shader, line, count)
  const [first, second] = name.arguments
  if (scalars.includes(name.name)) return scalar(name.name as ScalarName)
  const [, size, suffix] = /^vec([234])([fiu]?)$/.exec(name.name) ?? []
  if (size) {
    const element = suffix ? scalar(shortNames[suffix]) : of(first as TypeName)
    if (element.kind === 'scalar') return vectorOf(element.name, Number(size))
  }
  if (name.name === 'array')
    return {
      kind: 'array',
      of: of(first as TypeName),
      count: second ? count(second as Expression) : null,
    }
  // A workgroup runs on one thread, so its atomics are plain words.
  if (name.name === 'atomic') return of(first as TypeName)
  const alias = shader.aliases.get(name.name)
  if (alias) return of(alias)
  const fields = shader.structs.get(name.name)
  if (fields)
    return {
      kind: 'struct',
      name: name.name,
      fields: fields.map((field) => ({ name: field.name, type: of(field.type) })),
    }
  throw shaderError(
    line,
    `there is no function or type "${name.name}" in the part of WGSL that is supported`,
  )
}

/** Bytes of a value in memory. */
export function bytesOf(type: Type): number {
  if (type.kind === 'scalar') return 4
  if (type.kind === 'vector') return type.size === 2 ? 8 : 16
  if (type.kind === 'array') return (type.count ?? 0) * bytesOf(type.of)
  return type.fields.reduce((sum, { type: field }) => sum + bytesOf(field), 0)
}

/** The byte at which a field begins. No kernel keeps structs in buffers, so they lie without gaps. */
export function fieldOffset({ fields }: StructType, name: string): number {
  const at = fields.findIndex((field) => field.name === name)
  return fields.slice(0, at).reduce((sum, { type }) => sum + bytesOf(type), 0)
}

/** Components of a vector by its swizzle; undefined for anything else. */
export const swizzle = (name: string): number[] | undefined =>
  /^(?:[xyzw]{1,4}|[rgba]{1,4})$/.test(name)
    ? [...name].map((letter) => Math.max('xyzw'.indexOf(letter), 'rgba'.indexOf(letter)))
    : undefined

export const isAbstract = (name: ScalarName): boolean => name === 'int' || name === 'float'

/** The type of a value that is kept. */
export const concrete = (name: ScalarName): ScalarName =>
  name === 'int' ? 'i32' : name === 'float' ? 'f32' : name
