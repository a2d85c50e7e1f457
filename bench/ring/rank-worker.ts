import { type InitProcessGroupOptions, lendPage } from '../../src/entries/distributed.ts'
import type {
  CollectiveTask,
  FromWorker,
  HopsTask,
  LinksTaken,
  PingTask,
  RawTask,
  RingTask,
  RingTimes,
  ToWorker,
} from './protocol.ts'

/** A rank's worker as its page sees it. What fails there rejects every call. */
export class RankWorker {
  readonly #worker = new Worker(new URL('./ring.worker.ts', import.meta.url), { type: 'module' })
  readonly failed: Promise<never>
  fail!: (error: Error) => void

  constructor() {
    this.failed = new Promise<never>((_, reject) => {
      this.fail = reject
    })
    this.failed.catch(() => undefined)
    this.#worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => {
      if ('failed' in data) this.fail(new Error(data.failed))
    })
    this.#worker.onerror = ({ message }) => this.fail(new Error(`worker: ${message}`))
  }

  tell(message: ToWorker, transfer: Transferable[] = []): void {
    this.#worker.postMessage(message, transfer)
  }

  /** The worker's next word of this kind. */
  hear<T extends object>(isIt: (word: FromWorker) => T | undefined): Promise<T> {
    const heard = new Promise<T>((resolve) => {
      const listen = ({ data }: MessageEvent<FromWorker>) => {
        const word = isIt(data)
        if (!word) return
        this.#worker.removeEventListener('message', listen as EventListener)
        resolve(word)
      }
      this.#worker.addEventListener('message', listen as EventListener)
    })
    return Promise.race([heard, this.failed])
  }

  isReady(): Promise<object> {
    return this.hear((word) => ('ready' in word ? word : undefined))
  }

  /** Resolves when the group is formed. */
  async init(options: InitProcessGroupOptions): Promise<void> {
    const ready = this.isReady()
    const page = lendPage()
    this.tell({ init: { ...options, page } }, [page])
    await ready
  }

  async measure(task: RingTask): Promise<RingTimes> {
    const measured = this.hear((word) => ('measured' in word ? word : undefined))
    this.tell({ measure: task })
    return (await measured).measured
  }

  async links(): Promise<LinksTaken> {
    const taken = this.hear((word) => ('taken' in word ? word : undefined))
    this.tell({ links: true })
    return (await taken).taken
  }

  time = (task: CollectiveTask): Promise<number[]> => this.#timed({ time: task })
  ping = (task: PingTask): Promise<number[]> => this.#timed({ ping: task })
  hops = (task: HopsTask): Promise<number[]> => this.#timed({ hops: task })
  raw = (task: RawTask): Promise<number[]> => this.#timed({ raw: task })

  async #timed(order: ToWorker): Promise<number[]> {
    const heard = this.hear((word) => ('timed' in word ? word : undefined))
    this.tell(order)
    return (await heard).timed
  }
}
