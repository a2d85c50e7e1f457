import type { FolderFile } from './folder.ts'
import type { IdxArray } from './idx.ts'
import type { TransformDescription } from './image/transforms.ts'
import type { HostTensor } from './samples.ts'

/** Data sets as plain data, which `postMessage` carries to a worker; `loader/restore.ts` makes them anew. */
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
