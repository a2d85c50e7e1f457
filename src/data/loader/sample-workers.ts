import { DataError, TabringError } from '../../util/errors.ts'
import { startWorker } from '../../util/start-worker.ts'
import type { FieldDTypes } from '../collate.ts'
import type { DatasetDescription } from '../descriptions.ts'
import { listed } from './make-batch.ts'
import type { FromWorker, ToWorker } from './protocol.ts'

export interface SampleWorkersOptions {
  readonly count: number
  /** Starts a worker whose file calls `serveSamples`. */
  readonly start: () => Worker
  readonly dataset: DatasetDescription | undefined
  readonly length: number
  readonly isRaw: boolean
  readonly dtypes: FieldDTypes | undefined
  readonly seed: number
}

interface Task {
  readonly indices: Uint32Array<ArrayBuffer>
  readonly resolve: (batch: unknown) => void
  readonly reject: (error: Error) => void
}

interface Member {
  readonly worker: Worker
  readonly tasks: Map<number, Task>
  ended: TabringError | undefined
}

/** The workers of one loader. Batch n goes to worker n modulo their number, so equal runs use equal workers. */
export class SampleWorkers {
  readonly #members: Member[]
  readonly #options: SampleWorkersOptions
  #nextId = 0

  constructor(options: SampleWorkersOptions) {
    this.#options = options
    this.#members = Array.from({ length: options.count }, (_, number) => this.#start(number))
  }

  /** Makes one batch. errors: the sample's, naming worker and sample; `worker.dead` when the worker ends. */
  make(epoch: number, indices: Uint32Array<ArrayBuffer>): Promise<unknown> {
    const id = this.#nextId++
    const member = this.#members[id % this.#members.length]
    if (member.ended) return Promise.reject(member.ended)
    return new Promise((resolve, reject) => {
      member.tasks.set(id, { indices, resolve, reject })
      post(member.worker, { kind: 'make', id, epoch, indices })
    })
  }

  /** Ends all workers; what is pending rejects. */
  close(): void {
    this.#members.forEach((member, number) => {
      this.#end(member, number, 'the loader was closed')
    })
  }

  get isAlive(): boolean {
    return this.#members.every(({ ended }) => !ended)
  }

  #start(number: number): Member {
    const { start, dataset, isRaw, dtypes, seed } = this.#options
    const worker = startWorker('Worker', start, (why, event) => {
      event.preventDefault()
      this.#end(member, number, why)
    })
    const member: Member = { worker, tasks: new Map(), ended: undefined }
    const lock = `tabring-samples-${crypto.randomUUID()}`
    member.worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => {
      this.#receive(member, number, lock, data)
    })
    member.worker.addEventListener('messageerror', () =>
      this.#end(member, number, 'it sent an unreadable message'),
    )
    post(member.worker, { kind: 'begin', seed, dataset, isRaw, dtypes, lock })
    return member
  }

  #receive(member: Member, number: number, lock: string, message: FromWorker): void {
    switch (message.kind) {
      case 'ready': {
        const { length } = this.#options
        if (message.length !== length) {
          this.#end(
            member,
            number,
            `its data set has ${message.length} samples, the loader's ${length}`,
          )
          return
        }
        // The worker holds the lock while it lives; to get it means that the worker is gone, however it went.
        globalThis.navigator?.locks?.request(lock, () =>
          this.#end(member, number, 'it crashed or closed itself'),
        )
        return
      }
      case 'made': {
        const task = member.tasks.get(message.id)
        member.tasks.delete(message.id)
        task?.resolve(message.batch)
        return
      }
      case 'failed': {
        const { code, message: text, stack } = message.error
        if (message.id === null) {
          this.#end(member, number, text)
          return
        }
        const error = new DataError(
          code ?? 'data.malformed',
          `DataLoader: worker ${number}, ${text}`,
        )
        if (stack) error.stack = stack
        member.tasks.get(message.id)?.reject(error)
        member.tasks.delete(message.id)
      }
    }
  }

  #end(member: Member, number: number, why: string): void {
    if (member.ended) return
    member.worker.terminate()
    const [at] = member.tasks.values()
    member.ended = new TabringError(
      'worker.dead',
      `DataLoader: worker ${number} ended${at ? ` while it made samples ${listed(at.indices)}` : ''} (${why}). See the browser's console; use fewer workers or smaller batches if memory is short.`,
    )
    for (const { reject } of member.tasks.values()) reject(member.ended)
    member.tasks.clear()
  }
}

const post = (worker: Worker, message: ToWorker): void => worker.postMessage(message)
