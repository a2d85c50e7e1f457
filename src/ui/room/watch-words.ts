import { fromBase64Url, toBase64Url } from '../../peer/room/base64url.ts'
import { limits } from '../../peer/room/messages.ts'
import type { JsonValue } from '../../util/json-value.ts'

/** Messages between ranks and onlookers: JSON that is packed and cut to the server's boxes. */

/** A part of one message. */
export interface WatchPart {
  /** Number of the message, from its sender. */
  readonly id: number
  readonly part: number
  readonly parts: number
  readonly text: string
}

/** Sealed and as base64url twice, with what stands around it, a part fits a box. units: characters. */
const partChars = Math.floor(0.7 * limits.boxChars)
/** A message takes no more parts: a picture takes less than ten, the file of a small model 40. */
const maxParts = 400
/** A message unpacked: no sender may fill the memory. units: bytes. */
const maxBytes = 8 * 2 ** 20

const arrays = {
  Float32Array,
  Float64Array,
  Int32Array,
  Uint8Array,
  Uint8ClampedArray,
  Uint16Array,
  Uint32Array,
} as const

/** `value` as JSON, with typed arrays, maps and numbers such as NaN. */
export const textOf = (value: unknown): string =>
  JSON.stringify(value, (_, one) => {
    if (typeof one === 'number' && !Number.isFinite(one)) return { $number: String(one) }
    if (one instanceof Map) return { $map: [...one] }
    if (!ArrayBuffer.isView(one)) return one
    const bytes = new Uint8Array(one.buffer, one.byteOffset, one.byteLength)
    if (one instanceof Float32Array) return { $floats: toBase64Url(rounded(one)) }
    return { $array: one.constructor.name, bytes: toBase64Url(bytes) }
  })

/** The value that `textOf` got. errors: SyntaxError, RangeError or DOMException for other texts. */
export const valueIn = (text: string): unknown =>
  JSON.parse(text, (_, one) => {
    if (typeof one !== 'object' || one === null) return one
    if ('$number' in one) return Number(one.$number)
    if ('$map' in one) return new Map(one.$map)
    if ('$floats' in one) return floatsOf(fromBase64Url(String(one.$floats)))
    const Kind = '$array' in one && arrays[one.$array as keyof typeof arrays]
    return Kind ? new Kind(fromBase64Url(String(one.bytes)).buffer) : one
  })

/** The upper halves of floats: 8 bits of each are enough for a picture. */
function rounded(floats: Float32Array): Uint8Array {
  const bits = new Uint32Array(floats.slice().buffer)
  // First all exponents, which compress, then the rest.
  const bytes = new Uint8Array(2 * bits.length)
  for (const [i, one] of bits.entries()) {
    const upper = Math.min(one + 0x8000, 0xffff_ffff) >>> 16
    bytes[i] = upper >>> 8
    bytes[bits.length + i] = upper & 255
  }
  return bytes
}

function floatsOf(bytes: Uint8Array): Float32Array {
  const count = bytes.length >> 1
  const bits = Uint32Array.from(
    { length: count },
    (_, i) => (bytes[i] << 24) | (bytes[count + i] << 16),
  )
  return new Float32Array(bits.buffer)
}

/** Parts of a message; none where it is too long. */
export async function partsOf(id: number, value: unknown): Promise<WatchPart[]> {
  const packed = new Blob([textOf(value)]).stream().pipeThrough(new CompressionStream('gzip'))
  const text = toBase64Url(new Uint8Array(await new Response(packed).arrayBuffer()))
  const parts = Math.ceil(text.length / partChars)
  if (parts > maxParts) return []
  return Array.from({ length: parts }, (_, part) => {
    return { id, part, parts, text: text.slice(part * partChars, (part + 1) * partChars) }
  })
}

/** Puts the parts of one sender's messages together, which come in order; a message that lacks one is dropped. */
export class Joiner {
  #id = Number.NaN
  #texts: string[] = []

  /** The text of a whole message once its last part has come, else null. */
  take(message: JsonValue): string | null {
    const { id, part, parts, text } = Object(message) as WatchPart
    if (part === 0) {
      this.#id = id
      this.#texts = []
    }
    const isNext = id === this.#id && part === this.#texts.length
    if (!isNext || typeof text !== 'string' || !(part < parts && parts <= maxParts)) return null
    this.#texts.push(text)
    if (this.#texts.length < parts) return null
    this.#id = Number.NaN
    return this.#texts.splice(0).join('')
  }
}

/** errors: TypeError for what is not packed so, RangeError for too much. */
export async function unpacked(text: string): Promise<unknown> {
  const stream = new Blob([fromBase64Url(text)])
    .stream()
    .pipeThrough(new DecompressionStream('gzip'))
  const chunks: BlobPart[] = []
  let size = 0
  for (const reader = stream.getReader(); ; ) {
    const { done, value } = await reader.read()
    if (done) break
    size += value.length
    if (size > maxBytes) throw new RangeError(`watch: a message of more than ${maxBytes} bytes.`)
    chunks.push(value)
  }
  return valueIn(await new Blob(chunks).text())
}
