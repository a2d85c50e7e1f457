import { hkdfSync } from 'node:crypto'

/** The room of a key, as RoomSecret derives it in the tabs. */
export const roomOf = (secret: Buffer): string =>
  Buffer.from(hkdfSync('sha256', secret, '', 'tabring room 1', 16)).toString('hex')
