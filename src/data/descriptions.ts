import type { Shape } from '../util/shape.ts'
import type { FolderFile } from './folder.ts'
import type { IdxArray } from './idx.ts'

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
  | { readonly kind: 'tensors'; readonly tensors: Readonly<Record<string, HostTensor>> }
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
      readonly images: IdxArray
      readonly labels: IdxArray
      readonly transform: TransformDescription | undefined
    }
  | {
      readonly kind: 'tokens'
      readonly tokens: Int32Array<ArrayBuffer>
      readonly blockSize: number
      readonly stride: number
    }
