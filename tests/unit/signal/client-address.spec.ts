import type { IncomingMessage } from 'node:http'
import { describe, expect, test } from 'vitest'
import { clientAddress, networkOf } from '../../../node/client-address.ts'

describe('networkOf', () => {
  test.each([
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['::FFFF:c000:207', '192.0.2.7'],
    ['2001:db8:0:1:2:3:4:5', '2001:db8:0:1::/64'],
    ['2001:0DB8:0000:0001:ffff::', '2001:db8:0:1::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['unknown', 'unknown'],
  ])('%s counts as %s', (address, expected) => {
    expect(networkOf(address)).toBe(expected)
  })
})

describe('clientAddress', () => {
  const from = (remoteAddress: string | undefined, forwarded?: string) =>
    ({
      socket: { remoteAddress },
      headers: { 'x-forwarded-for': forwarded },
    }) as unknown as IncomingMessage

  test('is the socket’s where no proxy is trusted, whatever the header says', () => {
    expect(clientAddress(from('::ffff:192.0.2.1', '198.51.100.1'))).toBe('192.0.2.1')
  })

  test.each([
    ['198.51.100.1', '198.51.100.1'],
    ['203.0.113.9, 198.51.100.1', '198.51.100.1'],
    ['203.0.113.9,2001:db8:1:2:3::4', '2001:db8:1:2::/64'],
    ['198.51.100.1:4711', '198.51.100.1'],
    ['[2001:db8:1:2:3::4]:4711', '2001:db8:1:2::/64'],
    ['[::ffff:198.51.100.1]', '198.51.100.1'],
  ])('behind a proxy is the last entry of %j', (header, expected) => {
    expect(clientAddress(from('127.0.0.1', header), true)).toBe(expected)
  })

  test.each([undefined, '', 'unknown', '198.51.100.1, ', '198.51.100.1, _hidden'])(
    'behind a proxy that says %j is the proxy’s',
    (header) => {
      expect(clientAddress(from('127.0.0.1', header), true)).toBe('127.0.0.1')
    },
  )

  test('of a socket that has ended is unknown', () => {
    expect(clientAddress(from(undefined))).toBe('unknown')
  })
})
