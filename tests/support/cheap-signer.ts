import type { Signature, Signer } from '../../src/peer/room/life-keys.ts'
import { keyHashOf } from '../../src/peer/room/lives.ts'
import type { Env } from '../../src/util/env.ts'

/** How long it takes to sign, and to check: as long as a slow tab's. units: ms. */
const takesMs = 0.5

/**
 * Signs without cryptography, on a virtual clock. That nobody signs for another life is up to the world: a liar gets the signer of its present life alone,
 * and those of lives that it invents, which end with the name of its key.
 */
export function cheapSigner(life: string, env: Pick<Env, 'after'>): Signer {
  const later = <T>(value: T): Promise<T> =>
    new Promise((resolve) => {
      env.after(takesMs, () => resolve(value))
    })
  return {
    sign: (text) => later(signedBy(life, text)),
    verify: (from, text, { signature }) => later(signature === signedBy(from, text).signature),
  }
}

/** What a liar may use for its own life alone. */
export const signedBy = (life: string, text: string): Signature => ({
  key: '',
  signature: hashOf(keyHashOf(life) ?? life, text),
})

function hashOf(...texts: readonly string[]): string {
  let [a, b] = [0x811c9dc5, 0x9e3779b9]
  for (const text of texts)
    for (let i = 0; i < text.length; i++) {
      a = Math.imul(a ^ text.charCodeAt(i), 0x01000193)
      b = Math.imul(b ^ text.charCodeAt(i), 0x85ebca6b)
    }
  return `${(a >>> 0).toString(16)}${(b >>> 0).toString(16)}`
}
