import { createHmac } from 'node:crypto'

export interface TurnCredentials {
  username: string
  credential: string
}

/**
 * Returns credentials that a TURN server with the same secret takes until `expiresAtMs`: the shared-secret scheme that coturn calls
 * `use-auth-secret`.
 *
 * `name` is for the TURN server's log.
 * source: draft-uberti-behave-turn-rest-00, section 2.2: the user name is `<Unix seconds>:<name>`, the password base64(HMAC-SHA-1(secret, user name)).
 */
export function turnCredentials(
  secret: string,
  name: string,
  expiresAtMs: number,
): TurnCredentials {
  const username = `${Math.floor(expiresAtMs / 1000)}:${name}`
  return { username, credential: createHmac('sha1', secret).update(username).digest('base64') }
}
