import { createHash, hkdfSync } from 'node:crypto'

/** The room of a link's key, as RoomSecret derives it in the tabs. */
export const roomOf = (secret: Buffer): string =>
  roomOfAuthKey(Buffer.from(hkdfSync('sha256', secret, '', 'tabring auth 2', 32)).toString('hex'))

/** The one room that can be made under this `authKey`; both in hex. */
export const roomOfAuthKey = (authKey: string): string =>
  createHash('sha256').update(authKey, 'hex').digest('hex').slice(0, 32)
