import { roundHalf } from '../../kernels/half.ts'
import type { HostArray } from '../../kernels/op.ts'
import { halfBits, halfValue } from '../../util/half.ts'
import { isOf } from '../../util/kind-of.ts'
import { bytesOf, countElements, type TensorType } from '../../util/shape.ts'

/** A tensor's contents on the host. */
export type HostData =
  | Float32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>

/** Inputs of a run, by name; undefined for one that is in the device's memory alone. */
export type GivenInputs = ReadonlyMap<string, HostData | HostArray | undefined>

/** Rounds floats in place, as storing them on a device would. */
export function roundStored(values: HostArray, { dtype }: TensorType): HostArray {
  const store = dtype === 'f16' ? roundHalf : dtype === 'f32' ? Math.fround : undefined
  if (store) for (let i = 0; i < values.length; i++) values[i] = store(values[i])
  return values
}

/** The contents as references take them: floats as f64. */
export const toHostArray = (data: HostData): HostArray =>
  isOf(data, Float32Array) ? Float64Array.from(data) : data

const typedArrays = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }

/** The bytes that these elements take on a device, `bytesOf(type)` of them. */
export function toBytes(values: HostArray, type: TensorType): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(bytesOf(type))
  if (type.dtype === 'f16') new Uint16Array(bytes.buffer).set(Array.from(values, halfBits))
  else new typedArrays[type.dtype](bytes.buffer).set(values)
  return bytes
}

/** The elements in a device's bytes, as references take them. */
export function fromBytes(bytes: Uint8Array<ArrayBuffer>, { dtype, shape }: TensorType): HostArray {
  const count = countElements(shape)
  const { buffer, byteOffset } = bytes
  if (dtype === 'f16')
    return Float64Array.from(new Uint16Array(buffer, byteOffset, count), halfValue)
  return toHostArray(new typedArrays[dtype](buffer, byteOffset, count))
}
