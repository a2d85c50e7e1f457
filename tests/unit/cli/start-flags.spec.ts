import { describe, expect, test } from 'vitest'
import { usageProblem } from '../../../node/command-line.ts'
import { relayRateOf, roomKeyOf, startFlags } from '../../../node/start-flags.ts'

/** The command line of `npm start`. */

test('without flags asks for nothing', () => {
  expect(startFlags([])).toEqual({})
})

describe('takes', () => {
  test.each<[string[], object]>([
    [['--trust-proxy'], { trustProxy: true }],
    [['--ask'], { ask: true }],
    [['--room-key', 'open sesame'], { roomKey: 'open sesame' }],
    [['--relay', '--relay-rate', '20'], { relay: true, relayRate: 20 }],
    [['--log', 'rooms.log'], { log: 'rooms.log' }],
    [['--cert', 'c.pem', '--key', 'k.pem'], { cert: 'c.pem', key: 'k.pem' }],
  ])('%j', (argv, expected) => {
    expect(startFlags(argv)).toEqual(expected)
  })
})

/** What a person reads. */
function problemOf(...argv: string[]): string {
  try {
    startFlags(argv)
  } catch (thrown) {
    return usageProblem(thrown)
  }
  return ''
}

describe('refuses', () => {
  test.each([
    [['--trust-proxys'], '--trust-proxys: there is no such flag. Did you mean --trust-proxy?'],
    [['--relay-rate', '-1'], '--relay-rate: expected a whole number of 0 or more, got "-1".'],
    [['--relay-rate', '8'], '--relay-rate: needs --relay. Add it, or omit --relay-rate.'],
    [['--cert', 'c.pem'], '--cert: needs --key. Name the key of the certificate.'],
    [['--key', 'k.pem'], '--key: needs --cert. Name the certificate.'],
    [
      ['--device', 'cpu', '--visible-devices', '0'],
      '--visible-devices: cannot be combined with --device cpu, which uses no WebGPU device. Omit one of them.',
    ],
    [['--turn-lifetime', '60'], '--turn-lifetime: needs --ice-servers. Name the TURN server.'],
    [['--log'], '--log: the value is missing.'],
  ])('%j', (argv, text) => {
    expect(problemOf(...argv)).toBe(text)
  })
})

test('--relay-rate is in megabytes, 8 by default, and 0 stands for none', () => {
  const rates = [{}, { relayRate: 20 }, { relayRate: 0 }].map(relayRateOf)
  expect(rates).toEqual([8e6, 20e6, Number.POSITIVE_INFINITY])
})

describe('the room key', () => {
  const variable = 'TABRING_ROOM_KEY'
  test('is that of the flag, else of the environment, else none', () => {
    const environment = { [variable]: 'of the environment' }
    expect(roomKeyOf({ roomKey: 'of the flag' }, environment)).toBe('of the flag')
    expect(roomKeyOf({}, environment)).toBe('of the environment')
    expect(roomKeyOf({}, { [variable]: '' })).toBeUndefined()
    expect(roomKeyOf({}, {})).toBeUndefined()
  })

  test.each([
    ['secrets', /^--room-key: expected at least 8 characters .*, got 7\. Create one with openssl/],
    ['', /got 0/],
    [' secret with space', /without spaces around them/],
    ['secret of\ntwo lines', /in one line/],
  ])('%j is refused without being quoted', (roomKey, expected) => {
    expect(() => roomKeyOf({ roomKey }, {})).toThrow(expected)
    if (roomKey) expect(() => roomKeyOf({ roomKey }, {})).not.toThrow(roomKey)
    if (roomKey) expect(() => roomKeyOf({}, { [variable]: roomKey })).toThrow(/^TABRING_ROOM_KEY: /)
  })
})
