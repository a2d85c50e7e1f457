import type { Local } from '../assemble.ts'
import type { Part } from './arithmetic.ts'
import type { Type } from './types.ts'
import type { Value } from './value.ts'

/** Which invocations run: those with all bits; null: all. */
export type Mask = Local<'v128'> | null

/** A place that can be read by a name, and mostly written. */
export type Place =
  | { readonly kind: 'value'; readonly value: Value }
  | {
      readonly kind: 'locals'
      readonly type: Type
      readonly locals: readonly Local<'i32' | 'f32' | 'v128'>[]
      readonly key: string
      /** Of a part of a variable: its first word's number in the whole. */
      readonly first: number
      /** Who ran where it was declared. */
      readonly mask: Mask
    }
  | {
      readonly kind: 'memory'
      readonly type: Type
      /** units: bytes. */
      readonly address: Part
      /** From one word to the next: more than 4 where each invocation has its own. */
      readonly wordBytes: number
    }
  /** Memory of all invocations of a workgroup, as words behind each other: it outlives the loops over them. */
  | { readonly kind: 'frame'; readonly type: Type; readonly offset: number; readonly count: number }
  /** A value that is computed wherever it is read. */
  | { readonly kind: 'computed'; readonly type: Type; readonly value: () => Value }
  | { readonly kind: 'components'; readonly of: Place; readonly at: readonly Part[] }
