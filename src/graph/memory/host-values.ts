import { roundHalf } from '../../kernels/half.ts'
import type { HostArray } from '../../kernels/op.ts'
import type { TensorType } from '../../util/shape.ts'

/** A tensor's contents on the host. */
export type HostData =
  | Float32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>

/** What a run was given, by name; undefined for one that is in the device's memory alone. */
export type GivenInputs = ReadonlyMap<string, HostData | HostArray | undefined>

/** Rounds floats in place, as storing them on a device would. */
export function roundStored(values: HostArray, { dtype }: TensorType): HostArray {
  const store = dtype === 'f16' ? roundHalf : dtype === 'f32' ? Math.fround : undefined
  if (store) for (let i = 0; i < values.length; i++) values[i] = store(values[i])
  return values
}

/** The contents as references take them: floats as f64. */
export const toHostArray = (data: HostData): HostArray =>
  data instanceof Float32Array ? Float64Array.from(data) : data
