import { LanedConnection } from '../../peer/tab/laned-connection.ts'
import {
  type LinkParts,
  OwnParts,
  type OwnPartsOptions,
  type PortRequest,
} from '../../peer/tab/link-parts.ts'
import { type LocalPorts, openLocalPorts } from '../../peer/tab/local-ports.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { env } from '../rendezvous/env.ts'
import type { Place } from '../rendezvous/plan-links.ts'
import { pagePair, pageTag } from './page-pairs.ts'

/** How a group's links are made, and where this is: on this page, or on the page that was lent. */
export interface LinkMaker extends LinkParts {
  /** Where this is. The caller, which knows the rendezvous, adds `hasRelay`. */
  place(asksBrowser: boolean): Promise<Omit<Place, 'hasRelay'>>
  openStore(room: string): Promise<MessagePort | null>
}

/** What links are made of, for one group: on this page, also for the worker to which it was lent. In a worker itself, message channels alone. */
export class OwnPage extends OwnParts implements LinkMaker {
  #ports: Promise<LocalPorts | null> | undefined
  #unloaded: string | undefined

  constructor(transportOf: OwnPartsOptions['transportOf']) {
    super({
      ports: () => this.#localPorts(),
      makeConnection: (options) => new LanedConnection(options),
      transportOf,
    })
  }

  override async openPort(request: PortRequest, onGone: () => void): Promise<MessagePort> {
    if (request.way === 'port') return super.openPort(request, onGone)
    const pair = pagePair(request.key, onGone)
    this.pairs.push(pair)
    return pair.port
  }

  /** `asksBrowser`: whether to look for what joins the browser's tabs. */
  async place(asksBrowser: boolean): Promise<Omit<Place, 'hasRelay'>> {
    const ports = asksBrowser ? await this.#localPorts() : null
    return {
      pageTag,
      hostTag: ports?.hostTag ?? '',
      nodeTag: 'GROUP_RANK' in env ? env.GROUP_RANK : '',
      hasWebRtc: 'RTCPeerConnection' in globalThis,
      name: nameOfPlace(),
    }
  }

  /** A port to a store that the browser's tabs share; null where they share none. errors: `config.invalid` for a script that is missing. */
  async openStore(room: string): Promise<MessagePort | null> {
    const ports = await this.#localPorts()
    if (!ports && this.#unloaded)
      throw new PeerError(
        'config.invalid',
        `initProcessGroup: the SharedWorker failed: ${this.#unloaded}. Copy the library's folder dist-lib/assets beside the bundle, which esbuild does not, or use wss:// or opfs:.`,
      )
    return ports?.openStore(room) ?? null
  }

  override close(): void {
    super.close()
    void this.#ports?.then((ports) => ports?.close())
  }

  #localPorts(): Promise<LocalPorts | null> {
    this.#ports ??= openLocalPorts(systemEnv, (why) => {
      this.#unloaded = why
    })
    return this.#ports
  }
}

/** Where this runs, for error texts: without what stands behind the #, which may be a secret. */
function nameOfPlace(): string {
  const { location } = globalThis as { location?: { href: string } }
  return location ? location.href.replace(/#.*/, '').slice(0, 120) : 'a process'
}
