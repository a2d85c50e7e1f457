import type { ErrorCode } from '../../util/errors.ts'
import type { FieldDTypes } from '../collate.ts'
import type { DatasetDescription } from '../descriptions.ts'

/** What a loader and its workers say to each other. */
export type ToWorker =
  | {
      readonly kind: 'begin'
      readonly seed: number
      /** Absent for a worker file of the user's own, which has its data set. */
      readonly dataset: DatasetDescription | undefined
      /** True if samples are to come as they are, for a collate function on the loader's side. */
      readonly isRaw: boolean
      /** For `defaultCollate` in the worker. */
      readonly dtypes: FieldDTypes | undefined
      /** A Web Lock that the worker holds while it lives. */
      readonly lock: string
    }
  | {
      readonly kind: 'make'
      readonly id: number
      readonly epoch: number
      readonly indices: Uint32Array<ArrayBuffer>
    }

export type FromWorker =
  | { readonly kind: 'ready'; readonly length: number }
  | { readonly kind: 'made'; readonly id: number; readonly batch: unknown }
  | { readonly kind: 'failed'; readonly id: number | null; readonly error: ErrorWords }

/** An error on its way out of a worker. */
export interface ErrorWords {
  readonly code: ErrorCode | null
  readonly message: string
  readonly stack: string | undefined
}
