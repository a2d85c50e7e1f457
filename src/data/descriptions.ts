import type { Shape } from '../util/shape.ts'
import type { FolderFile } from './folder.ts'
import type { TextRows } from './language/text-rows.ts'

/** Elements on the host, in the types that programs take. */
export type HostNumbers =
  | Float32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>

/** Numbers on the host under a row-major shape. */
export interface HostTensor {
  readonly shape: Shape
  readonly data: HostNumbers
}

/** Elements of an array in a file, in the file's own type. */
export type FileNumbers =
  | HostNumbers
  | Uint8Array<ArrayBuffer>
  | Int8Array<ArrayBuffer>
  | Uint16Array<ArrayBuffer>
  | Int16Array<ArrayBuffer>
  | Float64Array<ArrayBuffer>

/** An array of a file, such as NumPy's. shape: `data` holds the product of `shape` elements, last dimension fastest. */
export interface FileArray {
  readonly shape: Shape
  readonly data: FileNumbers
}

export type TransformDescription =
  | { readonly kind: 'resize'; readonly size: number | readonly [number, number] }
  | { readonly kind: 'centerCrop'; readonly size: number | readonly [number, number] }
  | {
      readonly kind: 'randomResizedCrop'
      readonly size: number | readonly [number, number]
      readonly scale: readonly [number, number]
      readonly ratio: readonly [number, number]
    }
  | { readonly kind: 'randomHorizontalFlip'; readonly p: number }
  | { readonly kind: 'toTensor' }
  | {
      readonly kind: 'normalize'
      readonly mean: readonly number[]
      readonly std: readonly number[]
    }
  | { readonly kind: 'compose'; readonly of: readonly TransformDescription[] }

/** A data set as plain data that `postMessage` can send to a worker; `loader/restore.ts` recreates it. */
export type DatasetDescription =
  | { readonly kind: 'tensors'; readonly tensors: Readonly<Record<string, FileArray>> }
  | {
      readonly kind: 'subset'
      readonly of: DatasetDescription
      readonly indices: Uint32Array<ArrayBuffer>
    }
  | { readonly kind: 'concat'; readonly of: readonly DatasetDescription[] }
  | {
      readonly kind: 'imageFolder'
      readonly files: readonly FolderFile[]
      readonly transform: TransformDescription | undefined
    }
  | {
      readonly kind: 'idx'
      readonly images: FileArray
      readonly labels: FileArray
      readonly transform: TransformDescription | undefined
    }
  | {
      readonly kind: 'tokens'
      readonly tokens: Int32Array<ArrayBuffer>
      readonly blockSize: number
      readonly stride: number
    }
  | { readonly kind: 'texts'; readonly contents: TextRows }
