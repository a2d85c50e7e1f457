import { env } from '../rendezvous/env.ts'
import type { Backend } from '../rendezvous/plan-links.ts'

/**
 * Whether links of this kind can be made here: torch.distributed.is_backend_available. A worker whose page is lent to it has the page's.
 * Whether a signaling server relays, only joining it tells.
 */
export function isBackendAvailable(backend: string): boolean {
  const has = (name: string) => name in globalThis
  const known: Record<Backend, boolean> = {
    auto: has('MessageChannel'),
    local: has('MessageChannel'),
    broadcast: has('SharedWorker'),
    webrtc: has('RTCPeerConnection'),
    relay: has('WebSocket'),
  }
  return Object.hasOwn(known, backend) && known[backend as Backend]
}

/** Whether ranks can be joined here by any way: torch.distributed.is_available. */
export const isAvailable = (): boolean => isBackendAvailable('auto')

/** Whether `tabring run` or `tabring launch` started this rank: torch.distributed.is_torchelastic_launched. */
export const isTorchelasticLaunched = (): boolean => 'RUN_ID' in env
