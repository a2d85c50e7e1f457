import { maxThreads } from '../util/device.ts'
import { checkNumber, isCount } from '../util/options.ts'
import { setSwitches, switchValue } from '../util/switches.ts'

/** Locks of this browser begin so, one for each device that computes on its cores; so is the channel called on which they come and go. */
const sharing = 'tabring-cores'

/** Devices that share the cores, as far as is known: those of this browser's pages and workers. */
let sharers = 1

/**
 * How many threads the device `cpu` computes on, like torch.get_num_threads: what was set, else the machine's cores divided by the ranks that
 * compute on them in this browser.
 *
 * A page that is not isolated from other origins has one, whatever is set.
 */
export const getNumThreads = (): number =>
  switchValue('numThreads') ?? Math.max(1, Math.floor(cores() / sharers))

/** Of the machine, or as many as this process may use. */
function cores(): number {
  if (typeof navigator === 'object') return navigator.hardwareConcurrency
  return process.getBuiltinModule('node:os').availableParallelism()
}

/**
 * Sets how many threads the device `cpu` of this page, worker or process computes on, like torch.set_num_threads. Results do not depend on it.
 *
 * `count`: 1 to 64. A device that is open has no more threads than it began with. errors: `config.invalid`.
 */
export function setNumThreads(count: number): void {
  const isRight = (value: number) => isCount(value) && value <= maxThreads
  checkNumber('setNumThreads', 'count', count, isRight, `from 1 to ${maxThreads}`, true)
  setSwitches({ numThreads: count })
}

/** Counts another device among those that share the cores, until what it returns is called or the page or worker ends. */
export async function shareCores(): Promise<() => void> {
  const locks = globalThis.navigator?.locks
  if (!locks) return () => undefined
  const count = async () => {
    const { held = [] } = await locks.query()
    sharers = Math.max(1, held.filter(({ name }) => name?.startsWith(sharing)).length)
  }
  const channel = new BroadcastChannel(sharing)
  channel.onmessage = count
  let release!: () => void
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  await new Promise<void>((resolve) => {
    const hold = () => {
      resolve()
      return released
    }
    void locks.request(`${sharing} ${crypto.randomUUID()}`, hold).then(() => {
      channel.postMessage(null)
      channel.close()
    })
  })
  channel.postMessage(null)
  await count()
  return release
}
