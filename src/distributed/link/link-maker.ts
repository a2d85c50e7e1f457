import { linkOver } from '../../peer/link/channel-transport.ts'
import { withLane } from '../../peer/link/lanes.ts'
import type { Link } from '../../peer/link/link.ts'
import type { Place } from '../rendezvous/plan-links.ts'
import { overLentPage } from './lend-page.ts'
import { type ConnectionRequest, OwnPage, type PortRequest } from './page.ts'

/** How links are made here: on this page, or by the page that was lent. */
export interface LinkMaker {
  /** Where this is; whether the ranks have a relay is for who met them to say. */
  place(asksBrowser: boolean): Promise<Omit<Place, 'hasRelay'>>
  openPort(request: PortRequest, ongone: () => void): Promise<MessagePort>
  /** The link, when it is up. */
  connect(
    request: ConnectionRequest,
    onSignal: (attempt: number, signals: unknown) => void,
  ): Promise<Link>
  signal(key: string, attempt: number, signals: unknown): void
  /** Ends one connection, or the making of it. */
  disconnect(key: string): void
  openStore(room: string): Promise<MessagePort | null>
  close(): void
}

/** `lent`: what `lendPage` made on this worker's page. */
export function linkMaker(lent?: MessagePort): LinkMaker {
  return lent ? overLentPage(lent) : overOwnPage()
}

function overOwnPage(): LinkMaker {
  const page = new OwnPage()
  return {
    place: (asksBrowser) => page.place(asksBrowser),
    openPort: (request, ongone) => page.openPort(request, ongone),
    async connect(request, onSignal) {
      let link: Link | undefined
      await page.connect(
        request,
        (channel, lane) => {
          link = withLane(link, linkOver({ kind: 'channel', channel }), lane)
        },
        onSignal,
      )
      return link!
    },
    signal: (key, attempt, signals) => page.signal(key, attempt, signals),
    disconnect: (key) => page.disconnect(key),
    openStore: (room) => page.openStore(room),
    close: () => page.close(),
  }
}
