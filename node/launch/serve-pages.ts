import type { CheckpointFolder } from '../checkpoint-folder.ts'
import type { IceOptions } from '../ice/ice-source.ts'
import { PortTaken } from '../listen.ts'
import { dataMount } from '../mounts.ts'
import { type Served, serve } from '../serve.ts'
import type { Plan } from './plan.ts'
import type { Coordination } from './rendezvous.ts'
import { attachSignalProxy } from './signal-proxy.ts'

/** What a launcher serves. */
export interface Pages {
  /** The built pages. */
  root: string
  data: string | undefined
  checkpoints: CheckpointFolder | null
  ice: IceOptions | undefined
  relay: boolean | undefined
  /** Each start of the run has its own room; the signaling server takes no other. */
  maxRooms: number
}

/**
 * Serves the pages to this machine's tabs; alone on MASTER_PORT, with the signaling server for the rooms of this run alone, else on any port, with a
 * way to it.
 */
export async function servePages(
  { masterPort, isPortFixed }: Pick<Plan, 'masterPort' | 'isPortFixed'>,
  { signaling, keys }: Pick<Coordination, 'signaling' | 'keys'>,
  { root, data, checkpoints, ice, relay = false, maxRooms }: Pages,
): Promise<Served> {
  const mounts = data === undefined ? undefined : { [dataMount]: data }
  const offer = { root, policy: null, mounts, writable: checkpoints?.writable }
  if (signaling) {
    return serve({
      ...offer,
      port: 0,
      attach: (server) => attachSignalProxy(server, signaling),
    })
  }
  const mayCreate = keys.roomCheck(maxRooms)
  const own = { relay, mayCreate, ...(ice && { ice }) }
  try {
    return await serve({ ...offer, port: masterPort, strictPort: true, signaling: own })
  } catch (thrown) {
    if (isPortFixed || !(thrown instanceof PortTaken)) throw thrown
    return serve({ ...offer, port: 0, signaling: own })
  }
}
