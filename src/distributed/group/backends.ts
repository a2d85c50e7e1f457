import { env } from '../rendezvous/env.ts'
import type { Backend } from '../rendezvous/plan-links.ts'

/**
 * Returns whether this context can make links of this kind: torch.distributed.is_backend_available. A worker with `lendPage` has the
 * backends of its page. Whether a signaling server relays is known only after joining.
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
  return typeof backend === 'string' && Object.hasOwn(known, backend) && known[backend as Backend]
}

/** Returns whether this context can join ranks with any backend: torch.distributed.is_available. */
export const isAvailable = (): boolean => isBackendAvailable('auto')

/** Returns whether `tabring run` or `tabring launch` started this rank: torch.distributed.is_torchelastic_launched. */
export const isTorchelasticLaunched = (): boolean => 'RUN_ID' in env
