import { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import { Tensor } from '../../graph/trace/tensor.ts'
import {
  type CollectiveArray,
  type ElementArray,
  type ElementTypeName,
  elementsOf,
  elementTypeOf,
} from '../../peer/collective/element.ts'
import { ArgumentTypeError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'

/** Data that the distributed functions accept: arrays, and parameters or buffers of modules, which are copied to the host and back. */
export type Contents = CollectiveArray | StoredTensor

/** The elements as an array: the tensor's, copied, or the array itself, of a Float16Array the bits in it. */
export async function arrayOf(contents: Contents): Promise<ElementArray> {
  return contents instanceof StoredTensor ? contents.read() : elementsOf(contents)
}

/** Puts a result where it belongs, if it is not there already. */
export function putBack(contents: Contents, result: ElementArray): void {
  if (contents instanceof StoredTensor)
    contents.receive(result as Parameters<typeof contents.receive>[0])
  else if (contents !== result) elementsOf(contents).set(result)
}

export const lengthOf = (contents: Contents): number =>
  contents instanceof StoredTensor ? contents.count : contents.length

/** What its elements are on the way. errors: a TypeError for what is no tensor, or an array of another type. */
export function elementNameOf(where: string, name: string, contents: Contents): ElementTypeName {
  if (contents instanceof StoredTensor) return contents.dtype === 'f32' ? 'float32' : 'int32'
  if (ArrayBuffer.isView(contents)) return elementTypeOf(elementsOf(contents), where, name).name
  if ((contents as unknown) instanceof Tensor) {
    throw new ArgumentTypeError(
      `${where}: ${name} must be a typed array, a parameter or a buffer, got a tensor of a compiled function, which has no contents. Return it from the function, and pass what a run returns.`,
    )
  }
  throw new ArgumentTypeError(
    `${where}: ${name} must be a typed array, a parameter or a buffer, got ${kindOf(contents)}. Convert it, for example with Float32Array.from.`,
  )
}
