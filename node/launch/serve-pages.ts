import type { IceOptions } from '../ice/ice-source.ts'
import { PortTaken } from '../listen.ts'
import { type Served, type ServeOptions, serve } from '../serve.ts'
import type { Plan } from './plan.ts'
import type { Coordination } from './rendezvous.ts'
import { attachSignalProxy } from './signal-proxy.ts'

/** What a launcher serves to its tabs. */
export type Pages = Pick<ServeOptions, 'root' | 'policy' | 'mounts' | 'writable' | 'extraRoutes'>

/** Of a launcher without others, which has the signaling server too. */
export interface OwnSignaling {
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
  pages: Pages,
  { ice, relay = false, maxRooms }: OwnSignaling,
): Promise<Served> {
  if (signaling) {
    return serve({
      ...pages,
      port: 0,
      attach: (server) => attachSignalProxy(server, signaling),
    })
  }
  const mayCreate = keys.roomCheck(maxRooms)
  const own = { relay, mayCreate, ...(ice && { ice }) }
  try {
    return await serve({ ...pages, port: masterPort, strictPort: true, signaling: own })
  } catch (thrown) {
    if (isPortFixed || !(thrown instanceof PortTaken)) throw thrown
    return serve({ ...pages, port: 0, signaling: own })
  }
}
