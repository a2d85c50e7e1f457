import * as Comlink from 'comlink'
import { PortStore } from '../../peer/store/port-store.ts'
import { holdLock } from '../../peer/tab/web-locks.ts'
import { ArgumentTypeError, stackOf } from '../../util/errors.ts'
import { injectedName } from '../../util/injected.ts'
import { quoted } from '../../util/kind-of.ts'
import {
  type RankFailure,
  readyWord,
  type SpawnHost,
  type SpawnOrder,
  setSpawnedPlace,
} from './spawned.ts'

/**
 * Makes this worker a rank of `spawn`: calls `main(rank, ...args)`, waits for it, and sends its result or its error to the page.
 *
 * Call it once, at the top of your worker file. Functions cannot be sent to a worker, so the file takes the place of PyTorch's `fn`. In
 * `main`, `initProcessGroup()` joins the ranks of this spawn.
 * errors: `config.invalid` if `main` is not a function.
 */
export function serveRank<Args extends readonly unknown[]>(
  main: (rank: number, ...args: Args) => unknown,
): void {
  if (typeof main !== 'function') {
    throw new ArgumentTypeError(
      `serveRank: main must be a function (rank, ...args), got ${quoted(main)}. Pass the rank's program.`,
    )
  }
  const take = async ({ data }: MessageEvent<SpawnOrder>) => {
    if (typeof data !== 'object' || data === null || !('tabringRank' in data)) return
    removeEventListener('message', take)
    const { tabringRank: rank, worldSize, args, variables, lock } = data
    const host = Comlink.wrap<SpawnHost>(data.host)
    const fail = (thrown: unknown) => void host.failed(failureOf(thrown))
    // The page would hear of these with less than they have to say, or not at all.
    addEventListener('error', (event) => {
      event.preventDefault()
      fail(event.error ?? event.message)
    })
    addEventListener('unhandledrejection', (event) => {
      event.preventDefault()
      fail(event.reason)
    })
    Object.defineProperty(globalThis, injectedName, { value: { variables, args: [] } })
    setSpawnedPlace({
      rank,
      worldSize,
      lend: () => host.lend(),
      openStore: async () => new PortStore(await host.openStore()),
    })
    try {
      // Nothing is run before it: a worker that dies without it would not be noticed.
      await holdLock(lock)
      await host.alive()
      await host.done(await main(rank, ...(args as unknown as Args)))
    } catch (thrown) {
      fail(thrown)
    }
  }
  addEventListener('message', take)
  postMessage(readyWord)
}

function failureOf(thrown: unknown): RankFailure {
  if (!(thrown instanceof Error)) {
    return { name: 'thrown', message: String(thrown), code: '', stack: `thrown: ${String(thrown)}` }
  }
  const code = 'code' in thrown ? String(thrown.code) : ''
  return { name: thrown.name, message: thrown.message, code, stack: stackOf(thrown) }
}
