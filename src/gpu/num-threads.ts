import { maxThreads } from '../util/device.ts'
import { checkNumber, isCount } from '../util/options.ts'
import { setSwitches, switchValue } from '../util/switches.ts'

/** Locks of this browser begin so, one for each device that computes on its cores; so is the channel called on which they come and go. */
const sharing = 'tabring-cores'

/** Devices that share the cores, as far as is known: those of this browser's pages and workers. */
let sharers = 1

/** The threads of an open device. */
interface OpenThreads {
  /** How many it computes on. */
  readonly expected: number
  /** Starts those that are wanted now and are not there. */
  start(): void
}

/** Of the devices of this page, worker or process. */
const open = new Set<OpenThreads>()

function startWanted(): void {
  for (const threads of open) threads.start()
}

/** Starts the threads of a device, and more when more are wanted, until what it returns is called. */
export function startThreads(threads: OpenThreads): () => void {
  open.add(threads)
  threads.start()
  return () => void open.delete(threads)
}

/**
 * How many threads the device `cpu` computes on, like torch.get_num_threads. Before it is opened: what was set, else the machine's cores divided
 * by the ranks that compute on them in this browser.
 *
 * A page that is not isolated from other origins has one, whatever is set.
 */
export const getNumThreads = (): number =>
  [...open].at(-1)?.expected ?? (sharesMemory() ? wantedThreads() : 1)

/** What was set, else this device's share of the cores; whether or not workers can share a memory here. */
export const wantedThreads = (): number =>
  switchValue('numThreads') ?? Math.max(1, Math.floor(cores() / sharers))

/** Returns whether workers may share a memory here: a page must be isolated from other origins. */
export const sharesMemory = (): boolean =>
  typeof SharedArrayBuffer !== 'undefined' && globalThis.crossOriginIsolated !== false

/** Cores of the machine, or as many as this process may use. */
export function cores(): number {
  if (typeof navigator === 'object') return navigator.hardwareConcurrency
  return process.getBuiltinModule('node:os').availableParallelism()
}

/**
 * Sets how many threads the device `cpu` of this page, worker or process computes on, like torch.set_num_threads. Results do not depend on it.
 *
 * `count`: 1 to 64. An open device starts more threads, or leaves some idle. errors: `config.invalid`.
 */
export function setNumThreads(count: number): void {
  const isRight = (value: number) => isCount(value) && value <= maxThreads
  checkNumber('setNumThreads', 'count', count, isRight, `from 1 to ${maxThreads}`, true)
  setSwitches({ numThreads: count })
  startWanted()
}

const handleNothing = () => undefined

/** Locks of others for which this page, worker or process waits. */
const awaited = new Set<string>()

async function countSharers(locks: LockManager): Promise<void> {
  const { held = [] } = await locks.query()
  const isDevice = ({ name, mode }: LockInfo) => name?.startsWith(sharing) && mode === 'exclusive'
  const names = held.filter(isDevice).map(({ name }) => name!)
  sharers = Math.max(1, names.length)
  startWanted()
  for (const name of names) {
    if (awaited.has(name)) continue
    awaited.add(name)
    const handleFree = () => {
      awaited.delete(name)
      return countSharers(locks)
    }
    // The end of a page that closes is seen by its lock alone. Where the browser refuses, the count stays.
    locks.request(name, { mode: 'shared' }, handleNothing).then(handleFree).catch(handleNothing)
  }
}

/**
 * Counts another device among those that share the cores, until what it returns is called or the page or worker ends. Without locks, or where a
 * page may have none, it is the only one.
 */
export async function shareCores(): Promise<() => void> {
  const locks = globalThis.navigator?.locks
  if (!locks) return () => undefined
  let release: () => void = () => undefined
  try {
    const released = new Promise<void>((resolve) => {
      release = resolve
    })
    await new Promise<void>((resolve, reject) => {
      const hold = () => {
        resolve()
        return released
      }
      locks.request(`${sharing} ${crypto.randomUUID()}`, hold).catch(reject)
    })
    const channel = new BroadcastChannel(sharing)
    channel.onmessage = () => countSharers(locks).catch(handleNothing)
    // In Node a process may end while it listens.
    ;(channel as { unref?: () => void }).unref?.()
    channel.postMessage(null)
    await countSharers(locks)
    return () => {
      channel.close()
      release()
    }
  } catch {
    release()
    return () => undefined
  }
}
