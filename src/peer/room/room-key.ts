import { toHex } from '../../util/env.ts'

/** The key of a server that makes rooms for people who have it alone: the HMAC of this text, for one room and one connection, proves it. */
export function roomKeyText(room: string, nonce: string): string {
  return `tabring make 1 ${room} ${nonce}`
}

/** HMAC-SHA-256(key, roomKeyText(room, nonce)), in hex. */
export async function proveRoomKey(key: string, room: string, nonce: string): Promise<string> {
  const utf8 = new TextEncoder()
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const hmacKey = await crypto.subtle.importKey('raw', utf8.encode(key), algorithm, false, ['sign'])
  const text = utf8.encode(roomKeyText(room, nonce))
  return toHex(new Uint8Array(await crypto.subtle.sign('HMAC', hmacKey, text)))
}
