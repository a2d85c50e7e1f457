import type { HostDType, TensorType } from '../util/shape.ts'
import { halfFunctions } from './half.ts'
import { type HalfElement, isHalfElement, storedElement, withHalves } from './half-bindings.ts'
import type { Binding, Dispatch, Operand } from './op.ts'
import { specialFunctions } from './special-functions.ts'

/** A storage variable of a shader: what it is called, how it is used, which tensor it is. */
export interface ShaderBinding extends Binding {
  /**
   * WGSL element type; default `f32`. `vec4<f32>` needs a tensor whose element count is a multiple of 4. For those of f16 the
   * body, written as for f32, is changed (half-bindings.ts).
   */
  readonly element?:
    | HostDType
    | 'vec2<f32>'
    | 'vec2<u32>'
    | `vec4<${HostDType}>`
    | 'atomic<u32>'
    | HalfElement
  /** Elements of the array in WGSL, where the tensor has at least this many: indices are then held within a constant instead of asking for a length. */
  readonly count?: number
}

export const reads = (
  name: string,
  operand: Operand,
  element?: ShaderBinding['element'],
): ShaderBinding => ({ name, access: 'read', operand, element })

/** A tensor of f32, or of f16 in words of two, by its type. */
export const readsFloats = (name: string, operand: Operand, { dtype }: TensorType): ShaderBinding =>
  reads(name, operand, dtype === 'f16' ? 'u32' : 'f32')

/** WGSL of the element at `index` of such a tensor, as f32. */
export const floatAt = (name: string, { dtype }: TensorType, index: string): string =>
  dtype === 'f16' ? `half_of(${name}[(${index}) >> 1u], ${index})` : `${name}[${index}]`

/** The WGSL function `name_at(i: u32) -> f32` of such a tensor. */
export const floatFunction = (name: string, type: TensorType): string =>
  `fn ${name}_at(i: u32) -> f32 { return ${floatAt(name, type, 'i')}; }`

export const writes = (
  name: string,
  operand: Operand,
  element?: ShaderBinding['element'],
): ShaderBinding => ({ name, access: 'write', operand, element })

export const updates = (
  name: string,
  operand: Operand,
  element?: ShaderBinding['element'],
): ShaderBinding => ({ name, access: 'update', operand, element })

/**
 * Returns a dispatch whose shader is: the storage variables, the constants, then `body`.
 *
 * Declarations and bind-group layout come from the same list, so they cannot disagree (a mismatch is silent wrong data on
 * some drivers). Integer constants become `u32`, wrap a number in `f32(...)` by giving it as `{ f32: x }`.
 */
export function dispatch(options: {
  label: string
  /** WGSL extensions that the body uses. */
  enables?: readonly string[]
  bindings: readonly ShaderBinding[]
  constants?: Readonly<Record<string, number | { f32: number } | { i32: number }>>
  body: string
  groups: readonly [number, number, number]
  pieces?: Dispatch['pieces']
}): Dispatch {
  const variables = options.bindings.map(
    ({ name, access, element = 'f32', count }, index) =>
      `@group(0) @binding(${index}) var<storage, ${access === 'read' ? 'read' : 'read_write'}> ${name}: array<${isHalfElement(element) ? storedElement(element) : element}${count === undefined ? '' : `, ${count}`}>;`,
  )
  const body = options.bindings.reduce(
    (text, { name, element }) => (isHalfElement(element) ? withHalves(text, name, element) : text),
    options.body,
  )
  const constants = Object.entries(options.constants ?? {}).map(([name, value]) =>
    typeof value === 'number'
      ? `const ${name}: u32 = ${value}u;`
      : 'f32' in value
        ? `const ${name}: f32 = ${f32Literal(value.f32)};`
        : `const ${name}: i32 = ${value.i32};`,
  )
  const enables = (options.enables ?? []).map((name) => `enable ${name};`)
  return {
    label: options.label,
    wgsl: `${[...enables, ...variables, ...constants].join('\n')}\n\n${halfFunctions(body)}${specialFunctions(body)}${body}`,
    bindings: options.bindings.map(({ name, access, operand }) => ({ name, access, operand })),
    groups: options.groups,
    pieces: options.pieces,
  }
}

/** A WGSL literal that rounds to the same float32 as `value`. */
export function f32Literal(value: number): string {
  if (!Number.isFinite(value)) throw new Error(`f32Literal: expected a finite number, got ${value}`)
  const text = String(Math.fround(value))
  return /[.e]/.test(text) ? `${text}f` : `${text}.0f`
}

/** `ceil(count / size)` */
export const ceilDiv = (count: number, size: number): number => Math.ceil(count / size)

/**
 * Workgroup counts for `groups` one-dimensional workgroups, folded into y where they pass the 65,535 limit.
 * A shader then computes its index as `(group.y * GROUPS_X + group.x)`, with GROUPS_X the first entry.
 */
export function linearGroups(groups: number, limit = 65_535): readonly [number, number, number] {
  if (groups <= limit) return [groups, 1, 1]
  const rows = ceilDiv(groups, limit)
  return [ceilDiv(groups, rows), rows, 1]
}
