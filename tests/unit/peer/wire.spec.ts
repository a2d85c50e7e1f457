import { expect, test } from 'vitest'
import {
  decodeAbort,
  decodeHeader,
  decodeHello,
  emptyHeader,
  encodeAbort,
  encodeHeader,
  encodeHello,
  type FrameHeader,
  fieldOffset,
  headerBytes,
} from '../../../src/peer/link/wire.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'

const sample: FrameHeader = {
  type: 3,
  kind: 0x13,
  epoch: 0xfedcba98,
  sequence: 0xffffffff,
  bucket: 0xabcd,
  step: 0x1234,
  offset: 0x80000001,
  length: 4,
  number: 0xdeadbeef,
  credit: 0xffffffff,
  group: 0xfffe,
  begun: 0x4321,
}

function frame(header: Partial<FrameHeader> = {}): Uint8Array<ArrayBuffer> {
  const whole = { ...sample, ...header }
  const message = new Uint8Array(headerBytes + 4)
  encodeHeader(whole, message)
  return message
}

test('the header is 36 bytes and lies as the table says', () => {
  expect(headerBytes).toBe(36)
  expect(fieldOffset).toEqual({
    magic: 0,
    version: 1,
    type: 2,
    kind: 3,
    epoch: 4,
    sequence: 8,
    bucket: 12,
    step: 14,
    offset: 16,
    length: 20,
    number: 24,
    credit: 28,
    group: 32,
    begun: 34,
  })
  expect([...frame().subarray(4, 8)], 'little-endian').toEqual([0x98, 0xba, 0xdc, 0xfe])
})

test('decoding gives back what was encoded', () => {
  const header = emptyHeader()
  decodeHeader(frame(), header)
  expect(header).toEqual(sample)
})

test('each broken field is an error that says what was expected and what came', () => {
  const broken = (position: number, value: number) => {
    const message = frame()
    message[position] = value
    return () => decodeHeader(message, emptyHeader())
  }
  expect(broken(fieldOffset.magic, 7)).toThrow('expected magic 84, got 7')
  expect(broken(fieldOffset.version, 9)).toThrow('expected protocol version 7, got version 9')
  expect(broken(fieldOffset.type, 0)).toThrow('expected a frame type from 1 to 8, got 0')
  expect(broken(fieldOffset.type, 200)).toThrow('expected a frame type from 1 to 8, got 200')
  expect(broken(fieldOffset.length, 5)).toThrow('expected 41 bytes (payload 5), got 40 bytes')
  expect(() => decodeHeader(new Uint8Array(35), emptyHeader())).toThrow('at least 36 bytes')
})

test('random bytes are refused or decoded, never anything else', () => {
  const random = seededRandom(5)
  for (let round = 0; round < 2000; round++) {
    const message = Uint8Array.from({ length: Math.floor(random() * 80) }, () => random() * 256)
    if (round % 2) message.set(frame().subarray(0, Math.min(3, message.length)))
    try {
      decodeHeader(message, emptyHeader())
    } catch (thrown) {
      expect(thrown).toHaveProperty('code', 'peer.protocol')
    }
  }
})

test('HELLO and ABORT payloads come back', () => {
  const hello = { rank: 2, size: 5, maxMessageBytes: 65536, windowBytes: 524288 }
  expect(decodeHello(encodeHello(hello))).toEqual(hello)
  const text = 'rank 1 ist fort – Ende'
  const record = { group: 0, origin: 3, lost: 1, code: 'peer.lost', text }
  for (const one of [record, { ...record, lost: null }])
    expect(decodeAbort(encodeAbort(one))).toEqual(one)
  expect(decodeAbort(encodeAbort({ ...record, text: 'a\u001b[2J\nb' })).text).toBe('a [2J\nb')
  const long = { ...record, lost: null, code: 'x'.repeat(900), text: 'ü'.repeat(5000) }
  expect(encodeAbort(long, 1000).length).toBeLessThanOrEqual(1000)
  expect(() => decodeHello(new Uint8Array(15))).toThrow('16 bytes, got 15')
  expect(() => decodeAbort(new Uint8Array(3))).toThrow('got 3')
})
