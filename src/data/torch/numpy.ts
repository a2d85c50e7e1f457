import { halfValue } from '../../util/half.ts'
import { type NumpyCode, numpyTypes, type SafetensorsDtype } from '../elements.ts'
import { type Calls, Refused, Unfit } from './pickle-reader.ts'
import {
  elementsOf,
  isSizes,
  type Storage,
  type StoredTensor,
  stridesOf,
  viewOf,
} from './tensors.ts'

/** numpy's type of elements. */
class ArrayType {
  isBigEndian = false
  constructor(
    readonly dtype: SafetensorsDtype,
    readonly itemBytes: number,
  ) {}

  /** Bytes as elements of this type. */
  over(bytes: unknown): Storage {
    if (!(bytes instanceof Uint8Array)) throw new Unfit('the bytes of a numpy value')
    const { dtype, itemBytes, isBigEndian } = this
    const length = Math.floor(bytes.length / itemBytes)
    return {
      typeName: 'numpy',
      dtype,
      itemBytes,
      length,
      recordLength: length,
      key: '',
      begin: 0,
      bytes,
      isBigEndian,
    }
  }
}

/** An array, which its state makes a tensor of. */
export class NumpyArray {
  tensor: StoredTensor | undefined
}

export const numpyClasses: Calls = {
  'numpy.dtype': ([code]) => {
    const name = typeof code === 'string' ? code : ''
    return Object.hasOwn(numpyTypes, name)
      ? new ArrayType(numpyTypes[name as NumpyCode], Number(name[1]))
      : new Refused('numpy.dtype')
  },
  'numpy.core.multiarray._reconstruct': () => new NumpyArray(),
  // Protocol 5.
  'numpy.core.numeric._frombuffer': ([bytes, type, shape, order]) => {
    const array = new NumpyArray()
    setArrayState(array, [1, shape, type, order === 'F', bytes])
    return array
  },
  'numpy.core.multiarray.scalar': ([type, bytes]) => {
    if (!(type instanceof ArrayType)) return new Refused('numpy.generic')
    const storage = type.over(bytes)
    const one = viewOf(storage, [0, [], []])
    const [value] = elementsOf(one, type.dtype, storage.bytes!, type.isBigEndian).data
    if (type.dtype === 'F16') return halfValue(Number(value))
    if (type.dtype === 'BOOL') return value !== 0
    return Number.isSafeInteger(Number(value)) ? Number(value) : value
  },
}

/** Takes the state of a type or an array; ignores that of other objects. errors: `Unfit` for a state that does not fit. */
export function setArrayState(object: unknown, state: unknown): void {
  const fields = Array.isArray(state) ? state : []
  if (object instanceof ArrayType) object.isBigEndian = fields[1] === '>'
  if (!(object instanceof NumpyArray)) return
  const [, shape, type, isByColumns, bytes] = fields
  // Of Python's objects, texts or records.
  if (!(type instanceof ArrayType)) return
  if (!isSizes(shape)) throw new Unfit('the shape of a numpy array')
  const strides = isByColumns ? stridesOf([...shape].reverse()).reverse() : stridesOf(shape)
  object.tensor = viewOf(type.over(bytes), [0, shape, strides])
}
