import { DataError, messageOf } from '../../util/errors.ts'
import { isOf, isPlain } from '../../util/kind-of.ts'
import { checkOptions } from '../../util/options.ts'
import type { FieldDTypes } from '../collate.ts'
import type { Dataset, Sample } from '../samples.ts'
import { codeOf, makeBatch } from './make-batch.ts'
import type { FromWorker, ToWorker } from './protocol.ts'
import { restoreDataset } from './restore.ts'

/** A worker's own scope, as far as it is used here. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null
  postMessage(message: FromWorker, transfer: Transferable[]): void
}

export interface ServeOptions<S> {
  /** Stacks samples here, in the worker. Default: defaultCollate. */
  collateFn?: (samples: S[]) => unknown
}

/**
 * Makes this worker serve samples of `dataset` to a DataLoader.
 *
 * Call it at the top of your own worker file, and pass the loader `worker: () => new Worker(new URL('./that-file.ts', import.meta.url), {
 * type: 'module' })`. Without a data set, the loader sends the description of its data set.
 */
export function serveSamples<S = Sample>(
  dataset?: Dataset<S> | Promise<Dataset<S>>,
  options: ServeOptions<S> = {},
): void {
  checkOptions('serveSamples', options, { collateFn: true })
  const scope = globalThis as unknown as WorkerScope
  let serving:
    | Promise<{
        dataset: Dataset<unknown>
        isRaw: boolean
        dtypes: FieldDTypes | undefined
        seed: number
      }>
    | undefined
  const fail = (id: number | null, thrown: unknown) =>
    scope.postMessage(
      {
        kind: 'failed',
        id,
        error: {
          code: codeOf(thrown),
          message: messageOf(thrown),
          stack: thrown instanceof Error ? thrown.stack : undefined,
        },
      },
      [],
    )
  // One batch after the other, so that decoded images of several do not pile up.
  let last: Promise<unknown> = Promise.resolve()

  scope.onmessage = ({ data: message }) => {
    if (message.kind === 'begin') {
      const { seed, isRaw, dtypes, dataset: description } = message
      const begin = async () => {
        if (!dataset && !description)
          throw new DataError(
            'config.invalid',
            "serveSamples: the loader sent no data set to this worker file, and none was passed. Pass a data set, or remove the loader's worker option.",
          )
        const own = dataset ? await dataset : restoreDataset(description!)
        return { dataset: own as Dataset<unknown>, isRaw, dtypes, seed }
      }
      // Nothing is made before the lock is held: a worker that dies without it would not be noticed.
      serving = begin().then(async (ready) => {
        await holdForLife(message.lock)
        scope.postMessage({ kind: 'ready', length: ready.dataset.length }, [])
        return ready
      })
      serving.catch((thrown) => fail(null, thrown))
      return
    }
    const { id, epoch, indices } = message
    last = last.then(async () => {
      try {
        const own = await serving!
        const collate = own.isRaw
          ? (samples: unknown[]) => samples
          : ((options.collateFn as ((samples: unknown[]) => unknown) | undefined) ??
            own.dtypes ??
            {})
        const made = await makeBatch(own.dataset, collate, own.seed, epoch, indices)
        const { value, buffers } = wholeBuffers(made)
        scope.postMessage({ kind: 'made', id, batch: value }, buffers)
      } catch (thrown) {
        fail(id, thrown)
      }
    })
  }
}

/** Resolves when this worker holds the lock, which it then keeps as long as it lives; at once where there are no locks. */
const holdForLife = (lock: string): Promise<void> =>
  new Promise((resolve, reject) => {
    if (!globalThis.navigator?.locks) return resolve()
    const held = navigator.locks.request(lock, () => {
      resolve()
      return new Promise<void>(() => undefined)
    })
    held.catch(reject)
  })

/**
 * Returns `value` with every typed array on a buffer that holds nothing else, and those buffers, to be handed over to another thread.
 *
 * A view of a part is copied: posting it would take the whole buffer along, and with it what else lies there.
 */
function wholeBuffers(value: unknown): { value: unknown; buffers: ArrayBuffer[] } {
  const buffers = new Set<ArrayBuffer>()
  const walk = (part: unknown): unknown => {
    if (ArrayBuffer.isView(part) && !isOf(part, DataView)) {
      const view = part as Uint8Array
      const isWhole =
        isOf(view.buffer, ArrayBuffer) &&
        view.byteLength === view.buffer.byteLength &&
        !buffers.has(view.buffer)
      const whole = isWhole ? view : view.slice()
      buffers.add(whole.buffer as ArrayBuffer)
      return whole
    }
    if (Array.isArray(part)) return part.map(walk)
    if (isPlain(part))
      return Object.fromEntries(Object.entries(part).map(([key, inner]) => [key, walk(inner)]))
    return part
  }
  return { value: walk(value), buffers: [...buffers] }
}
