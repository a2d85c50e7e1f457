import { halfBits } from '../util/half.ts'
import { formatShape } from '../util/shape.ts'
import { malformed } from './malformed.ts'

/**
 * The GGUF file format, version 3, written.
 *
 *     "GGUF", u32 3, u64 number of tensors, u64 number of values
 *     values     name, u32 type, value
 *     tensors    name, u32 number of dimensions, u64 of each, the innermost first, u32 type, u64 offset in the data
 *     then       zeros up to a multiple of 32 bytes, and the data, where each tensor begins at such a multiple
 *
 * All little-endian; a text is its u64 length in bytes and UTF-8.
 * source: docs/gguf.md of ggml.
 */

/** Texts, and numbers as float32. */
export type GgufValue = string | number

export interface GgufTensor {
  /** Row-major, the outermost dimension first. */
  readonly shape: readonly number[]
  readonly data: Float32Array<ArrayBuffer>
}

const alignment = 32
const [float32, text] = [6, 8]
/** Types of tensors, by what safetensors calls them. */
const tensorTypes = { F32: 0, F16: 1 } as const

export type GgufDtype = keyof typeof tensorTypes

const aligned = (bytes: number): number => Math.ceil(bytes / alignment) * alignment

/** Parts of a file, one after the other. */
class Parts {
  readonly parts: Uint8Array<ArrayBuffer>[] = []
  size = 0

  bytes(bytes: Uint8Array<ArrayBuffer>): void {
    this.parts.push(bytes)
    this.size += bytes.length
  }

  number(sizeBytes: number, write: (view: DataView) => void): void {
    const view = new DataView(new ArrayBuffer(sizeBytes))
    write(view)
    this.bytes(new Uint8Array(view.buffer))
  }

  u32(value: number): void {
    this.number(4, (view) => view.setUint32(0, value, true))
  }

  u64(value: number): void {
    this.number(8, (view) => view.setBigUint64(0, BigInt(value), true))
  }

  text(value: string): void {
    const utf8 = new TextEncoder().encode(value)
    this.u64(utf8.length)
    this.bytes(utf8)
  }

  align(): void {
    this.bytes(new Uint8Array(aligned(this.size) - this.size))
  }
}

/**
 * Returns the bytes of a GGUF file with `values` and `tensors` in the given order; numbers of tensors as `dtype`.
 *
 * errors: `data.malformed` if a shape does not fit its data.
 */
export function writeGguf(
  values: Readonly<Record<string, GgufValue>>,
  tensors: Readonly<Record<string, GgufTensor>>,
  dtype: GgufDtype = 'F32',
): Uint8Array<ArrayBuffer> {
  const file = new Parts()
  file.bytes(new TextEncoder().encode('GGUF'))
  file.u32(3)
  file.u64(Object.keys(tensors).length)
  file.u64(Object.keys(values).length)
  for (const [name, value] of Object.entries(values)) {
    file.text(name)
    file.u32(typeof value === 'string' ? text : float32)
    if (typeof value === 'string') file.text(value)
    else file.number(4, (view) => view.setFloat32(0, value, true))
  }
  const data = new Parts()
  for (const [name, { shape, data: numbers }] of Object.entries(tensors)) {
    if (shape.reduce((product, dim) => product * dim, 1) !== numbers.length)
      throw malformed(
        `writeGguf: "${name}"`,
        `elements of ${formatShape(shape)}`,
        `${numbers.length}`,
      )
    file.text(name)
    file.u32(shape.length)
    for (const dim of [...shape].reverse()) file.u64(dim)
    file.u32(tensorTypes[dtype])
    file.u64(data.size)
    const own = dtype === 'F16' ? Uint16Array.from(numbers, halfBits) : numbers
    data.bytes(new Uint8Array(own.buffer, own.byteOffset, own.byteLength))
    data.align()
  }
  file.align()
  const all = [...file.parts, ...data.parts]
  const bytes = new Uint8Array(file.size + data.size)
  let at = 0
  for (const part of all) {
    bytes.set(part, at)
    at += part.length
  }
  return bytes
}
