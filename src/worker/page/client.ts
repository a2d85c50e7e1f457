import * as Comlink from 'comlink'
import { transferOf } from '../../peer/link/channel-transport.ts'
import { toHex } from '../../util/env.ts'
import { TabringError } from '../../util/errors.ts'
import { startWorker } from '../../util/start-worker.ts'
import type { CheckpointSettings, ComputeApi, NotARun } from '../api.ts'
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
  return {
    open: (choice, switches) => race(remote.open(choice, switches)),
    speed: () => race(remote.speed()),
    roundTrips: () => race(remote.roundTrips()),
    addLink: (epoch, peerRank, transport, lane) => {
      const moved = Comlink.transfer(transport, transferOf(transport))
      return race(remote.addLink(epoch, peerRank, moved, lane))
    },
    dropLinks: (epoch) => race(remote.dropLinks(epoch)),
    prepare: (config, baseUrl, onPhase) =>
      race(remote.prepare(config, baseUrl, Comlink.proxy(onPhase))),
    train: (membership, config, baseUrl, onEvents, ...rest) =>
      race(remote.train(membership, config, baseUrl, Comlink.proxy(onEvents), ...rest)),
    admit: (admission) => race(remote.admit(admission)),
    notLinked: (...args) => race(remote.notLinked(...args)),
    signal: (...args) => race(remote.signal(...args)),
    memberIsDead: (who, ballot) => race(remote.memberIsDead(who, ballot)),
    remove: (member) => race(remote.remove(member)),
    doubt: (member) => race(remote.doubt(member)),
    firstHalf: (ballot, first) => race(remote.firstHalf(ballot, first)),
    leftOut: (why) => race(remote.leftOut(why)),
    continueWithout: () => race(remote.continueWithout()),
    pause: () => race(remote.pause()),
    goOn: () => race(remote.goOn()),
    oneStep: () => race(remote.oneStep()),
    save: () => race(remote.save()),
    query: (name, input) => race(remote.query(name, input)),
    forget: () => race(remote.forget()),
    leave: () => race(remote.leave()),
    abort: (...args) => race(remote.abort(...args)),
    exportParameters: () => race(remote.exportParameters()),
    checkpoints: () => race(remote.checkpoints()),
    readCheckpoint: (place, name) => race(remote.readCheckpoint(place, name)),
    checkpointSettings: (place, name) => race(remote.checkpointSettings(place, name)),
    addCheckpoint: (file) => race<CheckpointSettings | NotARun>(remote.addCheckpoint(file)),
    removeCheckpoint: (place, name) => race(remote.removeCheckpoint(place, name)),
    traceEvents: () => race(remote.traceEvents()),
  }
}
