import { overLentPage } from './lend-page.ts'
import { type LinkMaker, OwnPage } from './page.ts'

export type { LinkMaker } from './page.ts'

/** `lent`: what `lendPage` made on this worker's page. */
export const linkMaker = (lent?: MessagePort): LinkMaker =>
  lent ? overLentPage(lent) : new OwnPage((channel) => ({ kind: 'channel', channel }))
