import { linkOver } from '../../peer/link/channel-transport.ts'
import { withLane } from '../../peer/link/lanes.ts'
import type { Link } from '../../peer/link/link.ts'
import { overLentPage } from './lend-page.ts'
import { type LinkMaker, OwnPage } from './page.ts'

export type { LinkMaker } from './page.ts'

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
