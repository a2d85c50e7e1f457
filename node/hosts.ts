import { isIP } from 'node:net'
import { hostNames } from './certificate.ts'

/**
 * Returns a test of Host headers: true for the names under which this machine is meant to be opened.
 *
 * A page of a foreign name that its owner points at our address (DNS rebinding) would count as our own, with our data
 * folder and rooms in reach; its requests carry that foreign name. Accepted: localhost, any address in digits (which
 * cannot be rebound), this machine's name, `names`, of which one may begin with `*.` as in a certificate, and the hosts of `allowedOrigins`. Ports do
 * not matter.
 */
export function ownHosts(
  allowedOrigins: readonly string[] = [],
  names: readonly string[] = [],
): (host: string | undefined) => boolean {
  const own = new Set(['localhost', ...hostNames(), ...names.map((name) => name.toLowerCase())])
  for (const origin of allowedOrigins) {
    if (URL.canParse(origin)) own.add(new URL(origin).hostname)
  }
  return (host) => {
    if (!host) return false
    const name = host.toLowerCase().replace(/:\d*$/, '')
    return (
      own.has(name) ||
      own.has(name.replace(/^[^.]+/, '*')) ||
      isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0
    )
  }
}
