import * as Comlink from 'comlink'
import { HashStore } from '../../peer/store/hash-store.ts'
import { serveStore } from '../../peer/store/port-store.ts'
import { lockFree } from '../../peer/tab/web-locks.ts'
import { systemEnv, toHex } from '../../util/env.ts'
import {
  ArgumentTypeError,
  type ProcessException,
  ProcessExitedException,
  ProcessRaisedException,
  TabringError,
} from '../../util/errors.ts'
import { isRecord, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { startWorker } from '../../util/start-worker.ts'
import { lendPage } from '../link/lend-page.ts'
import { env } from '../rendezvous/env.ts'
import { type RankFailure, readyWord, type SpawnHost, type SpawnOrder } from './spawned.ts'

/** Options of `spawn`. */
export interface SpawnOptions {
  /** Number of workers. Default 1. */
  nprocs?: number
  /** Arguments of `main` after the rank; each worker gets a copy. */
  args?: readonly unknown[]
  /** True if to wait for the workers to end. False: return a `ProcessContext` at once. Default true. */
  join?: boolean
  /** Terminates the workers; `spawn` rejects with its reason. */
  signal?: AbortSignal
}

/** A worker's script may take so long to load. units: ms. */
const startMs = 60_000
/** How long a failure that may be the echo of another's waits for it. units: ms. */
const echoMs = 700
/** Time for the reason of a worker that has ended: it comes by another channel, and counts before any echo. units: ms. */
const lastWordsMs = 300

/**
 * Starts `nprocs` workers, each a rank, and resolves with the results of their programs, by rank: torch.multiprocessing.spawn.
 *
 * `fn` creates one worker: `() => new Worker(new URL('./rank.ts', import.meta.url), { type: 'module' })`, in exactly this form, which bundlers
 * understand. That file calls `serveRank(main)`. On the first failure the other workers are terminated.
 * errors: `rank.failed`: a ProcessRaisedException with the first rank that failed and its stack, or a ProcessExitedException for a worker
 * that ended without a result; the signal's reason; `config.invalid`.
 */
export function spawn<Result = unknown>(
  fn: () => Worker,
  options: SpawnOptions & { readonly join: false },
): ProcessContext<Result>
export function spawn<Result = unknown>(fn: () => Worker, options?: SpawnOptions): Promise<Result[]>
export function spawn<Result>(
  fn: () => Worker,
  options: SpawnOptions = {},
): Promise<Result[]> | ProcessContext<Result> {
  if (options?.join === false) return new ProcessContext(fn, options)
  return (async () => new ProcessContext<Result>(fn, options).results)()
}

const notAWorker = (expected: string, got: string) =>
  new ArgumentTypeError(
    `spawn: expected ${expected}, got ${got}. Write () => new Worker(new URL('./rank.ts', import.meta.url), { type: 'module' }).`,
  )

/** What `fn` has returned. errors: a TypeError if it is no worker. */
function checkedWorker(made: Worker): Worker {
  const isWorker =
    isRecord(made) &&
    ['postMessage', 'addEventListener', 'terminate'].every(
      (name) => typeof made[name] === 'function',
    )
  if (!isWorker)
    throw notAWorker('a function that returns a new Worker', `one that returns ${quoted(made)}`)
  return made
}

/** Workers that `spawn` started together. */
export class ProcessContext<Result = unknown> {
  /** The workers, by rank. */
  readonly workers: readonly Worker[]
  /** Results of the programs, by rank, when all have succeeded. errors: those of `spawn`. */
  readonly results: Promise<Result[]>
  readonly #store = new HashStore()
  readonly #ending = new AbortController()
  readonly #done = new Map<number, Result>()
  readonly #cancels: (() => void)[] = []
  #echo: ProcessException | undefined
  #resolve!: (results: Result[]) => void
  #reject!: (error: unknown) => void

  /** Created by `spawn` with `join: false`. */
  constructor(fn: () => Worker, options: SpawnOptions) {
    const names = { nprocs: true, args: true, join: true, signal: true } as const
    const { nprocs = 1, args = [], signal } = checkOptions('spawn', options, names)
    checkNumber('spawn', 'nprocs', nprocs, isCount, 'a whole number of at least 1')
    if (typeof fn !== 'function')
      throw notAWorker('a function that makes a worker', `${quoted(fn)}`)
    checkArgument('spawn', 'args', args, Array.isArray(args), 'a list of arguments')
    const isSignal = signal === undefined || typeof signal?.throwIfAborted === 'function'
    checkArgument('spawn', 'signal', signal, isSignal, 'the signal of an AbortController')
    signal?.throwIfAborted()
    this.results = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    // Who has not joined yet hears of it when joining.
    this.results.catch(() => undefined)
    const workers: Worker[] = []
    this.workers = workers
    try {
      for (let rank = 0; rank < nprocs; rank++) {
        const exited = (what: string) => this.#exited(rank, what)
        const worker = startWorker(
          'Worker',
          () => checkedWorker(fn()),
          (why) => exited(`failed: ${why}.`),
        )
        workers.push(worker)
        this.#watch(worker, rank, args, exited)
      }
    } catch (thrown) {
      this.#end()
      if ('Worker' in globalThis || !(thrown instanceof ReferenceError)) throw thrown
      throw new TabringError(
        'config.invalid',
        'spawn: this runtime has no web workers (Node, for example). Start the ranks by `tabring run --nproc-per-node 2 train.ts`, or call spawn in a page.',
        { cause: thrown },
      )
    }
    const onAbort = () => this.#fail(signal!.reason)
    signal?.addEventListener('abort', onAbort)
    this.#cancels.push(() => signal?.removeEventListener('abort', onAbort))
  }

  /** Resolves with true when all have succeeded, or with false after `timeoutMs`. errors: those of `spawn`. */
  async join(timeoutMs?: number): Promise<boolean> {
    checkNumber('join', 'timeoutMs', timeoutMs, (ms) => ms >= 0, 'at least 0')
    if (timeoutMs === undefined) return this.results.then(() => true)
    let cancel!: () => void
    const late = new Promise<boolean>((resolve) => {
      cancel = systemEnv.after(timeoutMs, () => resolve(false))
    })
    try {
      return await Promise.race([this.results.then(() => true), late])
    } finally {
      cancel()
    }
  }

  /** Terminates the workers that are still running; `join` then rejects. */
  terminate(): void {
    this.#fail(
      new ProcessExitedException(this.#firstRunning(), 'spawn: the workers were terminated.'),
    )
  }

  #firstRunning(): number {
    return [...this.workers.keys()].find((rank) => !this.#done.has(rank)) ?? 0
  }

  #exited(rank: number, what: string): void {
    if (!this.#done.has(rank))
      this.#fail(new ProcessExitedException(rank, `spawn: rank ${rank} ${what}`))
  }

  #watch(
    worker: Worker,
    rank: number,
    args: readonly unknown[],
    exited: (what: string) => void,
  ): void {
    const cancelStart = systemEnv.after(startMs, () =>
      exited(
        `did not start within ${startMs / 1000} s. Its worker file must call serveRank(main).`,
      ),
    )
    this.#cancels.push(cancelStart)
    worker.addEventListener('messageerror', () =>
      exited('sent or got a message that could not be read. Pass args that can be cloned.'),
    )
    const onReady = ({ data }: MessageEvent) => {
      if (data !== readyWord) return
      worker.removeEventListener('message', onReady)
      cancelStart()
      const lock = `tabring rank ${toHex(systemEnv.random(16))}`
      const { port1, port2 } = new MessageChannel()
      Comlink.expose(this.#hostOf(rank, lock, exited), port1)
      const order: SpawnOrder = {
        tabringRank: rank,
        worldSize: this.workers.length,
        args,
        variables: { ...env } as Record<string, string>,
        lock,
        host: port2,
      }
      try {
        worker.postMessage(order, [port2])
      } catch (thrown) {
        // Functions, for one.
        this.#fail(thrown)
      }
    }
    worker.addEventListener('message', onReady)
  }

  #hostOf(rank: number, lock: string, exited: (what: string) => void): SpawnHost {
    return {
      alive: () => {
        void lockFree(lock, this.#ending.signal).then(() =>
          this.#cancels.push(
            systemEnv.after(lastWordsMs, () =>
              exited('ended without a result: it closed itself or crashed.'),
            ),
          ),
        )
      },
      done: (result) => {
        this.#done.set(rank, result as Result)
        if (this.#done.size < this.workers.length) return
        this.#resolve([...this.workers.keys()].map((one) => this.#done.get(one)!))
        this.#end()
      },
      failed: (failure) => this.#raised(rank, failure),
      lend: () => {
        const port = lendPage()
        return Comlink.transfer(port, [port])
      },
      openStore: () => {
        const { port1, port2 } = new MessageChannel()
        serveStore(this.#store, port1, () => undefined)
        return Comlink.transfer(port2, [port2])
      },
    }
  }

  #raised(rank: number, { name, message, code, stack }: RankFailure): void {
    const cause = Object.assign(new Error(message), { name, stack, ...(code && { code }) })
    const error = new ProcessRaisedException(
      rank,
      `spawn: rank ${rank} failed with this error:\n${stack}`,
      { cause },
    )
    // Ranks that lose a neighbour report it, sometimes before the neighbour's error arrives.
    const isEcho = code.startsWith('peer.') || code.startsWith('signal.')
    if (!isEcho) this.#fail(error)
    else if (!this.#echo) {
      this.#echo = error
      this.#cancels.push(systemEnv.after(echoMs, () => this.#fail(error)))
    }
  }

  #fail(error: unknown): void {
    this.#reject(error)
    this.#end()
  }

  #end(): void {
    this.#ending.abort()
    for (const cancel of this.#cancels.splice(0)) cancel()
    for (const worker of this.workers) worker.terminate()
    this.#store.close()
  }
}
