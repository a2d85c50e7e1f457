import type { TensorType } from '../util/shape.ts'

/**
 * Kernels are written for float32; here the same text learns to read and write tensors of f16.
 *
 * A binding of element `f16` is an array of words with two elements each, one of `vec4<f16>` an array of pairs of words with four.
 * Reads `x[i]` become calls that unpack; so do stores `x[i] = value;` of four neighbours, which pack. A store of single elements
 * needs an invocation that writes both halves of a word: `eachFloat` or `oneAfterTheOther`.
 */
export type HalfElement = 'f16' | 'vec4<f16>'

/** The element of a float tensor that a kernel binds one by one. */
export const floatElement = ({ dtype }: TensorType): 'f32' | 'f16' =>
  dtype === 'f16' ? 'f16' : 'f32'

/** The element of a float tensor that a kernel binds four by four. */
export const wideElement = ({ dtype }: TensorType): 'vec4<f32>' | 'vec4<f16>' =>
  dtype === 'f16' ? 'vec4<f16>' : 'vec4<f32>'

export const isHalfElement = (element: string | undefined): element is HalfElement =>
  element === 'f16' || element === 'vec4<f16>'

/** What an array of such elements holds. */
export const storedElement = (element: HalfElement): 'u32' | 'vec2<u32>' =>
  element === 'f16' ? 'u32' : 'vec2<u32>'

/** The place after the bracket that closes the one at `open`. */
function afterBracket(text: string, open: number): number {
  let depth = 0
  for (let at = open; at < text.length; at++) {
    if (text[at] === '[') depth++
    if (text[at] === ']' && --depth === 0) return at + 1
  }
  throw new Error('half-bindings: a bracket is not closed')
}

/** The text with each `name[index]` replaced; `store` is what stands after it where it is assigned to. */
function replaced(
  text: string,
  name: string,
  read: (index: string) => string,
  store: (index: string, value: string) => string,
): string {
  const found = new RegExp(`\\b${name}\\[`).exec(text)
  if (!found) return text
  const open = found.index + name.length
  const end = afterBracket(text, open)
  const rest = text.slice(end)
  const index = replaced(text.slice(open + 1, end - 1), name, read, store)
  const before = text.slice(0, found.index)
  const assigned = /^ = ([^;]*);/.exec(rest)
  if (!assigned) return before + read(index) + replaced(rest, name, read, store)
  const value = replaced(assigned[1], name, read, store)
  return before + store(index, value) + replaced(rest.slice(assigned[0].length), name, read, store)
}

/** A shader's body as it is where the named variable holds halves. */
export function withHalves(body: string, name: string, element: HalfElement): string {
  const isWide = element === 'vec4<f16>'
  let isRead = false
  let isStored = false
  const lines = body.split('\n').map((line) =>
    line.startsWith('//')
      ? line
      : replaced(
          line,
          name,
          (index) => {
            isRead = true
            return isWide ? `halves_of(${name}[${index}])` : `${name}_at(${index})`
          },
          (index, value) => {
            isStored ||= isWide
            return `${name}[${index}] = ${isWide ? `pack_halves(${value})` : value};`
          },
        ),
  )
  const text = lines.join('\n')
  return [
    ...(isRead && !isWide
      ? [`fn ${name}_at(i: u32) -> f32 { return half_of(${name}[i >> 1u], i); }\n`]
      : []),
    ...(isStored && !text.includes('fn pack_halves(') ? [packHalves] : []),
    text,
  ].join('\n')
}

const packHalves =
  'fn pack_halves(value: vec4<f32>) -> vec2<u32> { return vec2<u32>(pack_half(value.x, value.y), pack_half(value.z, value.w)); }\n'

/** Words of `count` halves: the invocations of a kernel that makes a word each. */
export const halfWords = (count: number): number => Math.ceil(count / 2)

/** The store of an element by an invocation that stores both of each word, the even one first; `held` is a separate variable. */
export const oneAfterTheOther = (name: string, at: string, value: string): string =>
  `if ((${at} & 1u) == 0u) { held = ${value}; } else { ${name}[${at} >> 1u] = pack_half(held, ${value}); }`
