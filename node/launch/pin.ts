import { createHash, X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import { connect, type TLSSocket } from 'node:tls'
import { clipped } from '../../src/util/clipped.ts'
import { PeerError, TabringError } from '../../src/util/errors.ts'

/** SHA-256 of a certificate's public key, as browsers and HPKP write it: `sha256/` and 44 characters of base64. */
export type Pin = `sha256/${string}`

/** Returns the pin of a certificate in PEM or DER form. */
export function pinOf(certificate: string | Buffer | X509Certificate): Pin {
  const parsed =
    certificate instanceof X509Certificate ? certificate : new X509Certificate(certificate)
  const spki = parsed.publicKey.export({ type: 'spki', format: 'der' })
  return `sha256/${createHash('sha256').update(spki).digest('base64')}`
}

/** A pin as a person gives it: with `sha256/` or without. errors: `config.invalid`. */
export function parsePin(text: string): Pin {
  const base64 = text.replace(/^sha256\//, '')
  if (/^[A-Za-z0-9+/]{43}=$/.test(base64)) return `sha256/${base64}`
  throw new TabringError(
    'config.invalid',
    `--master-fingerprint: expected sha256/ and 44 characters of base64, got "${clipped(text)}". Copy what the first launcher printed.`,
  )
}

/** How long a connection may take, handshake included. */
const connectTimeoutMs = 10_000

/**
 * Opens a TLS connection and calls back with it once its certificate is the pinned one; without a pin, with any certificate, whose pin the caller
 * has to check before it sends anything that matters.
 *
 * Nothing is sent on a connection whose certificate is another. The certificate's names and dates do not count: it is self-signed,
 * and known by its key.
 * errors: `peer.mismatch` for another certificate; the socket's own.
 */
export function connectPinned(
  { host, port, pin }: { host: string; port: number; pin?: Pin },
  done: (error: Error | null, socket?: TLSSocket, found?: Pin) => void,
): void {
  const socket = connect({
    host,
    port,
    // Checked by its key below: no authority has signed it.
    rejectUnauthorized: false,
    minVersion: 'TLSv1.3',
    ALPNProtocols: ['http/1.1'],
    ...(isIP(host) === 0 && { servername: host }),
  })
  let isSettled = false
  const settle = (error: Error | null, found?: Pin) => {
    if (isSettled) return
    isSettled = true
    clearTimeout(timer)
    if (error) socket.destroy()
    socket.off('error', settle)
    done(error, error ? undefined : socket, found)
  }
  const timer = setTimeout(
    () =>
      settle(
        new PeerError(
          'peer.timeout',
          `${host}:${port}: no connection within ${connectTimeoutMs / 1000} s. Is a firewall in between?`,
        ),
      ),
    connectTimeoutMs,
  )
  socket.once('error', settle)
  socket.once('secureConnect', () => {
    const certificate = socket.getPeerX509Certificate()
    const found = certificate && pinOf(certificate)
    if (!found || (pin && found !== pin)) {
      settle(
        new PeerError(
          'peer.mismatch',
          `${host}:${port}: expected the certificate with the fingerprint ${pin}, got ${found ?? 'none'}. Check that this is the right launcher; someone may be intercepting the connection.`,
        ),
      )
    } else settle(null, found)
  })
}
