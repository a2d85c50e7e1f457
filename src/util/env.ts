/**
 * The environment of a protocol state machine: a clock, timers and randomness, all injected.
 *
 * Rendezvous, link sessions and collectives take everything they need from outside through an `Env`, so one seed replays a run and a
 * virtual clock makes hours of waiting free.
 */
export interface Env {
  /** Returns milliseconds since an arbitrary origin; never decreases. */
  now(): number
  /** Runs `callback` once after `delayMs`; returns a function that cancels it. */
  after(delayMs: number, callback: () => void): () => void
  /** Returns `length` random bytes. */
  random(length: number): Uint8Array
}

/** The real clock and the platform's cryptographic randomness. */
export const systemEnv: Env = {
  now: () => performance.now(),
  after(delayMs, callback) {
    const timer = setTimeout(callback, delayMs)
    return () => clearTimeout(timer)
  },
  random: (length) => crypto.getRandomValues(new Uint8Array(length)),
}

/** `bytes` as lower-case hexadecimal digits. */
export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}
