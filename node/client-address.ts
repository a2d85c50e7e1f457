import type { IncomingMessage } from 'node:http'
import { isIP, isIPv6 } from 'node:net'

/**
 * Returns the address that a request counts for: an IPv4 address, or the /64 network of an IPv6 one, because that is what one customer gets.
 *
 * `trustsProxy`: a proxy in front of this server says who asks, in the last entry of X-Forwarded-For. Entries before that one are the client's own
 * words, and without a proxy the whole header is.
 */
export function clientAddress(
  { socket, headers }: Pick<IncomingMessage, 'socket' | 'headers'>,
  trustsProxy = false,
): string {
  const forwarded = trustsProxy && withoutPort(lastOf(headers['x-forwarded-for']))
  const address = forwarded || socket.remoteAddress
  return address === undefined ? 'unknown' : networkOf(address)
}

/** IPv6 by its /64; an IPv4 address in the form of IPv6 is the IPv4 address. source: RFC 4291, section 2.5.5.2. */
export function networkOf(address: string): string {
  const plain = address.replace(/%.*$/, '')
  if (!isIPv6(plain)) return address
  // A URL writes each address in one way, without digits in points.
  const [head, tail] = new URL(`http://[${plain}]`).hostname.slice(1, -1).split('::')
  const before = groupsOf(head)
  const after = groupsOf(tail)
  const groups = [...before, ...Array(8 - before.length - after.length).fill('0'), ...after]
  if (/^(0:){5}ffff:/.test(groups.join(':'))) {
    const [high, low] = groups.slice(6).map((group) => Number.parseInt(group, 16))
    return [high >> 8, high & 255, low >> 8, low & 255].join('.')
  }
  return `${groups.slice(0, 4).join(':')}::/64`
}

const groupsOf = (text: string | undefined): string[] => (text ? text.split(':') : [])

const lastOf = (header: string | string[] | undefined): string =>
  String(header ?? '')
    .split(',')
    .at(-1)!
    .trim()

/** Some proxies name the port too. Empty for what is no address. */
function withoutPort(entry: string): string {
  const address = entry.replace(/^\[(.*)\](:\d+)?$/, '$1').replace(/^([\d.]+):\d+$/, '$1')
  return isIP(address) === 0 ? '' : address
}
