/**
 * The frame that travels on every link: 36 bytes of header, little-endian, then the payload.
 *
 *     bytes   field     type  meaning
 *     0       magic     u8    0x54
 *     1       version   u8    7
 *     2       type      u8    FrameType
 *     3       kind      u8    START, DATA: operation (low 4 bits) and element type (high 4 bits)
 *     4-7     epoch     u32   membership of the group this frame belongs to
 *     8-11    sequence  u32   START, DATA: the n-th collective of that epoch
 *     12-13   bucket    u16   START, DATA: bucket within the sequence number
 *     14-15   step      u16   DATA: ring step; START: ranks known to have begun it, the sender and those before it
 *     16-19   offset    u32   DATA: byte offset in the chunk; PING, PONG: the pinger's serial number; START: 1 if only `step` is news
 *     20-23   length    u32   payload bytes; the message is exactly 32 + length bytes
 *     24-27   number    u32   frames this side sent on the link before this one, modulo 2^32
 *     28-31   credit    u32   DATA bytes (headers included) consumed by this side so far, modulo 2^32
 *     32-33   group     u16   START, DATA, ABORT: which group of the epoch's ranks; 0 is all of them
 *     34-35   begun     u16   DATA: 0; or START is in it too: as START's `step`, and the payload begins with the fingerprint
 *
 * A header of 36 bytes keeps the payload 4-aligned in the received buffer.
 *
 * `number`: links are ordered and reliable, so a lost, doubled or reordered message shows at once instead of as a hole later. `credit`
 * rides on every frame, so a link that is busy both ways hardly needs CREDIT frames.
 */
import { PeerError } from '../../util/errors.ts'

export const FrameType = {
  hello: 1,
  start: 2,
  data: 3,
  credit: 4,
  ping: 5,
  pong: 6,
  abort: 7,
  bye: 8,
} as const

export type FrameTypeName = keyof typeof FrameType

const typeNames = Object.keys(FrameType) as FrameTypeName[]
const lastType = FrameType.bye

export const wireMagic = 0x54
export const wireVersion = 7

/** The one list from which every offset follows; see the table above. */
const layout = [
  ['magic', 1],
  ['version', 1],
  ['type', 1],
  ['kind', 1],
  ['epoch', 4],
  ['sequence', 4],
  ['bucket', 2],
  ['step', 2],
  ['offset', 4],
  ['length', 4],
  ['number', 4],
  ['credit', 4],
  ['group', 2],
  ['begun', 2],
] as const

type FieldName = (typeof layout)[number][0]

/** Byte offset of each header field. */
export const fieldOffset = (() => {
  const offsets = {} as Record<FieldName, number>
  let position = 0
  for (const [name, sizeBytes] of layout) {
    offsets[name] = position
    position += sizeBytes
  }
  return offsets
})()

export const headerBytes = layout.reduce((sum, [, sizeBytes]) => sum + sizeBytes, 0)

/** A decoded header. Reused between frames: copy what must outlive the handler. */
export interface FrameHeader {
  type: number
  kind: number
  epoch: number
  sequence: number
  bucket: number
  step: number
  offset: number
  length: number
  number: number
  credit: number
  group: number
  begun: number
}

/** Returns a header with every field 0. */
export function emptyHeader(): FrameHeader {
  return {
    type: 0,
    kind: 0,
    epoch: 0,
    sequence: 0,
    bucket: 0,
    step: 0,
    offset: 0,
    length: 0,
    number: 0,
    credit: 0,
    group: 0,
    begun: 0,
  }
}

export function frameTypeName(type: number): string {
  return typeNames.find((name) => FrameType[name] === type) ?? `type ${type}`
}

const at = fieldOffset

function put16(target: Uint8Array, position: number, value: number): void {
  target[position] = value
  target[position + 1] = value >>> 8
}

function put32(target: Uint8Array, position: number, value: number): void {
  target[position] = value
  target[position + 1] = value >>> 8
  target[position + 2] = value >>> 16
  target[position + 3] = value >>> 24
}

function get16(source: Uint8Array, position: number): number {
  return source[position]! | (source[position + 1]! << 8)
}

function get32(source: Uint8Array, position: number): number {
  return (
    (source[position]! |
      (source[position + 1]! << 8) |
      (source[position + 2]! << 16) |
      (source[position + 3]! << 24)) >>>
    0
  )
}

/** Writes `header` over the first 36 bytes of `target`. cost: no allocation. Inverse: `decodeHeader`. */
export function encodeHeader(header: FrameHeader, target: Uint8Array): void {
  target[at.magic] = wireMagic
  target[at.version] = wireVersion
  target[at.type] = header.type
  target[at.kind] = header.kind
  put32(target, at.epoch, header.epoch)
  put32(target, at.sequence, header.sequence)
  put16(target, at.bucket, header.bucket)
  put16(target, at.step, header.step)
  put32(target, at.offset, header.offset)
  put32(target, at.length, header.length)
  put32(target, at.number, header.number)
  put32(target, at.credit, header.credit)
  put16(target, at.group, header.group)
  put16(target, at.begun, header.begun)
}

/**
 * Reads the header of `message` into `header` and checks everything that needs no context. Inverse: `encodeHeader`.
 *
 * cost: no allocation. Plain byte arithmetic, because a DataView would be one object a frame.
 * errors: `peer.protocol` for a short message, a foreign magic, another version, an unknown type, a wrong length.
 */
export function decodeHeader(message: Uint8Array, header: FrameHeader): void {
  if (message.length < headerBytes)
    throw bad(`at least ${headerBytes} bytes`, `${message.length} bytes`)
  if (message[at.magic] !== wireMagic)
    throw bad(
      `magic ${wireMagic}`,
      `${message[at.magic]}`,
      'Something other than Tabring is sending on this link.',
    )
  if (message[at.version] !== wireVersion)
    throw bad(
      `protocol version ${wireVersion}`,
      `version ${message[at.version]}`,
      'Reload every tab so that all run the same build.',
    )
  header.type = message[at.type]!
  header.kind = message[at.kind]!
  header.epoch = get32(message, at.epoch)
  header.sequence = get32(message, at.sequence)
  header.bucket = get16(message, at.bucket)
  header.step = get16(message, at.step)
  header.offset = get32(message, at.offset)
  header.length = get32(message, at.length)
  header.number = get32(message, at.number)
  header.credit = get32(message, at.credit)
  header.group = get16(message, at.group)
  header.begun = get16(message, at.begun)
  if (header.type < 1 || header.type > lastType)
    throw bad(`a frame type from 1 to ${lastType}`, `${header.type}`)
  if (message.length !== headerBytes + header.length)
    throw bad(
      `${headerBytes + header.length} bytes (payload ${header.length})`,
      `${message.length} bytes`,
    )
}

function bad(expected: string, actual: string, remedy = ''): PeerError {
  return new PeerError(
    'peer.protocol',
    `frame: expected ${expected}, got ${actual}.${remedy ? ` ${remedy}` : ''}`,
  )
}

/** HELLO payload: what one side of a link sends the other before anything else. */
export interface Hello {
  rank: number
  size: number
  /** The largest message this side takes, bytes. */
  maxMessageBytes: number
  /** DATA bytes (headers included) this side holds before it has consumed them. */
  windowBytes: number
}

export function encodeHello(hello: Hello): Uint8Array {
  return words(hello.rank, hello.size, hello.maxMessageBytes, hello.windowBytes)
}

/** errors: `peer.protocol` for a payload of another length. */
export function decodeHello(payload: Uint8Array): Hello {
  const [rank, size, maxMessageBytes, windowBytes] = readWords(payload, 4, 'HELLO')
  return {
    rank: rank!,
    size: size!,
    maxMessageBytes: maxMessageBytes!,
    windowBytes: windowBytes!,
  }
}

/** START payload: with the header's kind, epoch, sequence and bucket, all on which two neighbours must agree. */
export interface Fingerprint {
  elements: number
  alignment: number
  /** Where one rank has another part than the rest: that rank. Of a message: the sender. Else 0. */
  root: number
  /** Its place in `reduceOps`. */
  reduction: number
  /** Its place in `algorithms`. */
  algorithm: number
  /** Of who shares a machine, where that matters; else 0. */
  machines: number
  /** The function that calls it, where it is a part of something: a function's name, ASCII. Else empty. */
  label: string
}

/** The longest label. units: bytes, and characters. */
export const labelBytes = 32

const fingerprintWords = 6

/** Of an encoded fingerprint; a multiple of 4, so that data behind it stays aligned. */
export const fingerprintBytes = 4 * fingerprintWords + labelBytes

export function encodeFingerprint(fingerprint: Fingerprint): Uint8Array {
  const { elements, alignment, root, reduction, algorithm, machines, label } = fingerprint
  const payload = new Uint8Array(fingerprintBytes)
  payload.set(words(elements, alignment, root, reduction, algorithm, machines))
  new TextEncoder().encodeInto(label, payload.subarray(4 * fingerprintWords))
  return payload
}

/** errors: `peer.protocol` for a payload of another length. */
export function decodeFingerprint(payload: Uint8Array): Fingerprint {
  if (payload.length !== fingerprintBytes)
    throw bad(`a START payload of ${fingerprintBytes} bytes`, `${payload.length}`)
  const received = payload.subarray(4 * fingerprintWords)
  const end = received.indexOf(0)
  const [elements, alignment, root, reduction, algorithm, machines] = readWords(
    payload.subarray(0, 4 * fingerprintWords),
    fingerprintWords,
    'START',
  )
  return {
    label: shownText(end < 0 ? received : received.subarray(0, end), labelBytes),
    elements: elements!,
    alignment: alignment!,
    root: root!,
    reduction: reduction!,
    algorithm: algorithm!,
    machines: machines!,
  }
}

/** ABORT: who ended a group, which rank is lost (null: none), the error's code, and its text for people. */
export interface AbortRecord {
  /** Which group ends; 0: the epoch, with all of its groups. In the header; the rest is payload. */
  group: number
  origin: number
  lost: number | null
  code: string
  text: string
}

const maxAbortTextBytes = 4096
const abortHeadBytes = 12
const noRank = 0xffffffff
/** Longer than any of ours; a rank passes on what another has sent. */
const maxAbortCodeBytes = 40

/** `maxBytes`: what the link takes; a text that does not fit is cut. */
export function encodeAbort(record: AbortRecord, maxBytes = Number.POSITIVE_INFINITY): Uint8Array {
  const code = new TextEncoder().encode(record.code).subarray(0, maxAbortCodeBytes)
  const max = Math.min(maxAbortTextBytes, maxBytes - abortHeadBytes - code.length)
  const text = new TextEncoder().encode(record.text).subarray(0, max)
  const payload = new Uint8Array(abortHeadBytes + code.length + text.length)
  put32(payload, 0, record.origin)
  put32(payload, 4, record.lost ?? noRank)
  put32(payload, 8, code.length)
  payload.set(code, abortHeadBytes)
  payload.set(text, abortHeadBytes + code.length)
  return payload
}

/** errors: `peer.protocol` for a payload that is too short or too long. */
export function decodeAbort(payload: Uint8Array, group = 0): AbortRecord {
  const maxBytes = maxAbortTextBytes + 256
  if (payload.length < abortHeadBytes || payload.length > maxBytes)
    throw bad(`an ABORT payload of ${abortHeadBytes} to ${maxBytes} bytes`, `${payload.length}`)
  const lost = get32(payload, 4)
  const codeBytes = get32(payload, 8)
  const textAt = abortHeadBytes + codeBytes
  if (textAt > payload.length)
    throw bad(`an ABORT code of at most ${payload.length - abortHeadBytes} bytes`, `${codeBytes}`)
  return {
    group,
    origin: get32(payload, 0),
    lost: lost === noRank ? null : lost,
    code: new TextDecoder().decode(payload.subarray(abortHeadBytes, textAt)),
    text: shownText(payload.subarray(textAt), maxAbortTextBytes),
  }
}

/** Text that another rank has sent, as errors show it: cut to a length, and without characters that play tricks on a terminal. */
export const shownText = (bytes: Uint8Array, max: number): string =>
  new TextDecoder()
    .decode(bytes)
    .slice(0, max)
    .replace(/[^\P{Cc}\n\t]/gu, ' ')

function words(...values: number[]): Uint8Array {
  const payload = new Uint8Array(4 * values.length)
  values.forEach((value, index) => {
    put32(payload, 4 * index, value)
  })
  return payload
}

function readWords(payload: Uint8Array, count: number, frame: string): number[] {
  if (payload.length !== 4 * count)
    throw bad(`a ${frame} payload of ${4 * count} bytes`, `${payload.length}`)
  return Array.from({ length: count }, (_, index) => get32(payload, 4 * index))
}
