import * as Comlink from 'comlink'
import { transferOf } from '../../peer/link/channel-transport.ts'
import { toHex } from '../../util/env.ts'
import { TabringError } from '../../util/errors.ts'
import { startWorker } from '../../util/start-worker.ts'
import type { ComputeApi } from '../api.ts'
import { keepErrorCodes } from '../error-transfer.ts'

/** A compute worker as its page holds it. */
export interface ComputeClient {
  /** The worker's methods; each pending call rejects when the worker ends. */
  readonly api: ComputeApi
  /** Rejects with `worker.dead` when the worker ends, for whatever reason; never resolves. */
  readonly dead: Promise<never>
  /** Ends the worker at once. */
  terminate(): void
}

/** Starts a worker, named as given, whose script calls `serveCompute`: which script that is the page's entry point knows. */
export type StartWorker = (name: string) => Worker

/**
 * Starts a compute worker.
 *
 * Comlink alone leaves calls to a dead worker pending for ever. Here the worker holds a Web Lock for as long as it lives, the page waits for
 * that lock, and getting it means that the worker is gone: crashed, closed or terminated.
 */
export function startCompute(start: StartWorker): ComputeClient {
  keepErrorCodes()
  const name = `tabring-compute-${toHex(crypto.getRandomValues(new Uint8Array(8)))}`
  const worker = startWorker(
    'Worker',
    () => start(name),
    (why) => {
      worker.terminate()
      die(why)
    },
  )
  let fail!: (error: TabringError) => void
  const dead = new Promise<never>((_, reject) => {
    fail = reject
  })
  dead.catch(() => undefined)
  const die = (why: string) =>
    fail(
      new TabringError(
        'worker.dead',
        `compute worker: ended (${why}). Reload the tab to start a new one.`,
      ),
    )
  worker.addEventListener('message', function alive({ data }) {
    if (data?.tabring !== 'alive') return
    worker.removeEventListener('message', alive)
    navigator.locks.request(name, () => die('crashed or closed'))
  })
  const remote = Comlink.wrap<ComputeApi>(worker)
  return {
    api: rejectWhenDead(remote, dead),
    dead,
    terminate() {
      worker.terminate()
      die('terminated')
    },
  }
}

/** The same methods, each racing against the worker's end. Transports and callbacks are handed over in the calling task. */
function rejectWhenDead(remote: Comlink.Remote<ComputeApi>, dead: Promise<never>): ComputeApi {
  const race = <T>(call: Promise<T>): Promise<T> => Promise.race([call, dead])
  const handingOver: Partial<ComputeApi> = {
    addLink: (epoch, peerRank, transport, lane) => {
      const moved = Comlink.transfer(transport, transferOf(transport))
      return race(remote.addLink(epoch, peerRank, moved, lane))
    },
    prepare: (config, baseUrl, onPhase) =>
      race(remote.prepare(config, baseUrl, Comlink.proxy(onPhase))),
    train: (membership, config, baseUrl, onEvents, ...rest) =>
      race(remote.train(membership, config, baseUrl, Comlink.proxy(onEvents), ...rest)),
  }
  type Call = (...args: unknown[]) => Promise<unknown>
  const calls = remote as unknown as Record<string, Call>
  return new Proxy(handingOver as ComputeApi, {
    get(own, name: keyof ComputeApi | 'then') {
      // A promise may hold it.
      if (name === 'then') return undefined
      return own[name] ?? ((...args: unknown[]) => race(calls[name](...args)))
    },
  })
}
