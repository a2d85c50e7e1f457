import type { Local } from '../assemble.ts'
import {
  type Arithmetic,
  constant,
  isUniform,
  laneCount,
  type Part,
  type Uniform,
} from './arithmetic.ts'
import { concrete, isAbstract, type ScalarName, type Type, vectorOf } from './types.ts'

/** A value, as its words in order. A `vec4` of one invocation is one part: a vector, or a word that its four share. */
export interface Value {
  readonly type: Type
  readonly parts: readonly Part[]
}

/** How values lie in parts: of one invocation, or of four neighbouring ones. */
export class Values {
  readonly arithmetic: Arithmetic
  readonly lanes: 1 | typeof laneCount

  constructor(arithmetic: Arithmetic, lanes: 1 | typeof laneCount) {
    this.arithmetic = arithmetic
    this.lanes = lanes
  }

  /** Tells whether the four words of such a value are one part. */
  isPacked(type: Type): boolean {
    return this.lanes === 1 && type.kind === 'vector' && type.size === laneCount
  }

  partCount(type: Type): number {
    if (type.kind === 'scalar' || this.isPacked(type)) return 1
    if (type.kind === 'vector') return type.size
    if (type.kind === 'array') return (type.count ?? 0) * this.partCount(type.of)
    return type.fields.reduce((sum, field) => sum + this.partCount(field.type), 0)
  }

  /** The type of each part's words. */
  partTypes(type: Type): ScalarName[] {
    if (type.kind === 'scalar') return [type.name]
    if (type.kind === 'vector') return new Array(this.partCount(type)).fill(type.of)
    if (type.kind === 'array')
      return new Array(type.count ?? 0).fill(this.partTypes(type.of)).flat()
    return type.fields.flatMap((field) => this.partTypes(field.type))
  }

  zero(type: Type): Value {
    return { type, parts: this.partTypes(type).map(() => constant(0)) }
  }

  /** The words of a vector or scalar one by one. */
  components(value: Value): Part[] {
    const { type, parts } = value
    const count = this.isPacked(type) ? laneCount : parts.length
    return Array.from({ length: count }, (_, i) => this.component(value, i))
  }

  /** Word `i` of a vector or scalar. */
  component({ type, parts }: Value, i: number): Part {
    if (type.kind !== 'vector' || !this.isPacked(type)) return parts[i]
    const [part] = parts
    return isUniform(part)
      ? part
      : this.arithmetic.lane(type.of, (part as { local: Local<'v128'> }).local, i)
  }

  ofComponents(of: ScalarName, components: readonly Part[]): Value {
    const type = vectorOf(of, components.length)
    if (!this.isPacked(type)) return { type, parts: components }
    const words = components as readonly Uniform[]
    const isSame = words.every(
      (word) =>
        word.kind === 'constant' && Object.is(word.value, (words[0] as { value: number }).value),
    )
    return isSame
      ? { type, parts: [words[0]] }
      : { type, parts: [{ kind: 'vector', local: this.arithmetic.gather(of, words) }] }
  }

  /** A literal as the type that it is used with. */
  as(value: Value, name: ScalarName): Value {
    const { type } = value
    if (type.kind !== 'scalar' && type.kind !== 'vector') return value
    const from = type.kind === 'scalar' ? type.name : type.of
    if (from === name || !isAbstract(from)) return value
    const parts = value.parts.map((part) => this.arithmetic.convert(from, name, part, false))
    return {
      type: type.kind === 'scalar' ? { kind: 'scalar', name } : { ...type, of: name },
      parts,
    }
  }

  /** Likewise, as a type that can be kept. */
  concrete(value: Value): Value {
    const name = elementOf(value.type)
    return name ? this.as(value, concrete(name)) : value
  }
}

/** The type of the words of a scalar or vector. */
export const elementOf = (type: Type): ScalarName | undefined =>
  type.kind === 'scalar' ? type.name : type.kind === 'vector' ? type.of : undefined
