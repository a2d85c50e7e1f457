import { operations } from '../../../src/peer/algorithms/operations.ts'
import type { Link, LinkEnd } from '../../../src/peer/link/link.ts'
import {
  decodeHeader,
  emptyHeader,
  encodeAbort,
  encodeHeader,
  type FrameHeader,
  FrameType,
  fieldOffset,
  fingerprintBytes,
  headerBytes,
} from '../../../src/peer/link/wire.ts'
import type { Draw } from '../simulation/draw.ts'
import { garbage, mutatedBytes, mutatedJson } from './mutate.ts'

/** What a hostile rank does to a message on its way out. */
export const injections = [
  'field',
  'field',
  'field',
  'payload',
  'payload',
  'resize',
  'bytes',
  'drop',
  'double',
  'hold',
  'replay',
  'forge',
  'forge',
  'abort',
  'flood',
  'garbage',
] as const
export type Injection = (typeof injections)[number]

type Message = Uint8Array<ArrayBuffer>

const fields = Object.keys(emptyHeader()) as (keyof FrameHeader)[]
const edges = [
  0,
  1,
  2,
  3,
  15,
  16,
  255,
  65_000,
  65_534,
  65_535,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32 - 4,
  2 ** 32 - 1,
]
const codes = ['peer.lost', 'peer.aborted', '', '__proto__', 'toString', 'x'.repeat(300)]

const headerOf = (message: Message): FrameHeader | undefined => {
  const header = emptyHeader()
  try {
    decodeHeader(message, header)
    return header
  } catch {
    return undefined
  }
}

const frame = (header: FrameHeader, payload: Uint8Array): Message => {
  const message = new Uint8Array(headerBytes + payload.length)
  encodeHeader({ ...header, length: payload.length }, message)
  message.set(payload, headerBytes)
  return message
}

/** Slots are as long as the longest record. */
const withoutZeros = (bytes: Uint8Array): Uint8Array => {
  let end = bytes.length
  while (end > 0 && bytes[end - 1] === 0) end--
  return bytes.subarray(0, end)
}

/** Where in the payload of DATA a whole record of JSON begins; undefined for none. */
function jsonAt(message: Message): number | undefined {
  const header = headerOf(message)
  if (header?.type !== FrameType.data) return undefined
  const at = header.begun > 0 ? fingerprintBytes : 0
  const bytes = message.subarray(headerBytes + at)
  if (bytes[0] !== 0x7b) return undefined
  try {
    JSON.parse(new TextDecoder().decode(withoutZeros(bytes)))
    return at
  } catch {
    return undefined
  }
}

/** The hostile rank's end of a link: what its session sends goes through `inject` first. */
export class HostileLink implements Link {
  readonly kind
  readonly maxMessageBytes
  readonly #inner: Link
  readonly #draw: Draw
  /** Which fault the next message gets; undefined for none. */
  readonly #next: () => Injection | undefined
  /** Called for each message that goes out. */
  readonly #onsent: (message: Message, inject: Injection | undefined) => void
  readonly #earlier: Message[] = []
  #held: Message | undefined
  /** What frames are numbered by; a wrong number is found at once, and little else would be. */
  #number = 0
  readonly #isNumbered: boolean
  readonly #changesRecords: boolean

  constructor(
    inner: Link,
    draw: Draw,
    next: () => Injection | undefined,
    onsent: (message: Message, inject: Injection | undefined) => void,
  ) {
    this.kind = inner.kind
    this.maxMessageBytes = inner.maxMessageBytes
    this.#inner = inner
    this.#draw = draw
    this.#next = next
    this.#onsent = onsent
    this.#isNumbered = !draw.isOneIn(8)
    this.#changesRecords = draw.isOneIn(3)
  }

  room(): number {
    return this.#inner.room()
  }

  send(message: Message): void {
    const isRecord = this.#changesRecords && jsonAt(message) !== undefined
    const inject = this.#next() ?? (isRecord ? 'payload' : undefined)
    const original = message.slice()
    const all = inject ? this.#injected(inject, original) : [original]
    const held = this.#held
    if (held && inject !== 'hold') {
      all.push(held)
      this.#held = undefined
    }
    this.#earlier.push(message.slice())
    for (const one of all) this.#out(one, inject)
  }

  #out(message: Message, inject: Injection | undefined): void {
    const own = message.subarray(0, this.maxMessageBytes) as Message
    if (this.#isNumbered && own.length >= headerBytes && inject !== 'garbage')
      new DataView(own.buffer, own.byteOffset).setUint32(fieldOffset.number, this.#number++, true)
    this.#onsent(own, inject)
    this.#inner.send(own)
  }

  #injected(inject: Injection, message: Message): Message[] {
    const draw = this.#draw
    const header = headerOf(message) ?? emptyHeader()
    const payload = message.subarray(headerBytes)
    switch (inject) {
      case 'field': {
        const name = draw.pick(fields)
        const value = draw.pick([header[name] + 1, header[name] - 1, draw.pick(edges)])
        const changed = message.slice()
        encodeHeader({ ...header, [name]: value }, changed)
        return [changed]
      }
      case 'payload':
        return [frame(header, this.#changedPayload(payload, jsonAt(message)))]
      case 'resize':
        return [frame(header, this.#resized(payload))]
      case 'bytes':
        return [mutatedBytes(message, draw, this.#earlier)]
      case 'garbage':
        return [garbage(draw, 200)]
      case 'drop':
        return []
      case 'double':
        return [message, message.slice()]
      case 'hold':
        this.#held = message
        return []
      case 'replay':
        return [message, (this.#earlier.length > 0 ? draw.pick(this.#earlier) : message).slice()]
      case 'forge':
        return [message, this.#forged(header)]
      case 'abort': {
        const origin = draw.pick([0, 1, 2, 99, 2 ** 32 - 1])
        const record = {
          group: header.group,
          origin,
          lost: draw.pick([null, 0, 99]),
          code: draw.pick(codes),
          text: draw.pick(['', 'because', '\u0000\u001b']),
        }
        return [message, frame({ ...header, type: FrameType.abort }, encodeAbort(record))]
      }
      case 'flood': {
        const many = Array.from({ length: draw.whole(20, 300) }, (_, i) =>
          this.#forged({ ...header, sequence: header.sequence + i }),
        )
        return [message, ...many]
      }
    }
  }

  /** As long as before: a record becomes another one, all else other bytes. `at`: where the record begins. */
  #changedPayload(payload: Uint8Array, at: number | undefined): Uint8Array {
    const out = payload.slice()
    if (at !== undefined) {
      const json = JSON.parse(new TextDecoder().decode(withoutZeros(payload.subarray(at))))
      const bytes = new TextEncoder().encode(mutatedJson(json, this.#draw))
      out.fill(0x20, at, at + withoutZeros(payload.subarray(at)).length)
      out.set(bytes.subarray(0, out.length - at), at)
      return out
    }
    const place = this.#draw.whole(0, Math.max(0, out.length - 4)) & ~3
    if (out.length >= place + 4)
      new DataView(out.buffer).setUint32(place, this.#draw.pick(edges), true)
    return out
  }

  #resized(payload: Uint8Array): Uint8Array {
    const draw = this.#draw
    const length = draw.pick([
      0,
      1,
      4,
      payload.length - 4,
      payload.length + 1,
      payload.length + 4,
      4 * payload.length,
    ])
    const out = new Uint8Array(Math.max(0, Math.min(length, this.maxMessageBytes - headerBytes)))
    out.set(payload.subarray(0, out.length))
    return out
  }

  #forged(header: FrameHeader): Message {
    const draw = this.#draw
    const type = draw.pick(Object.values(FrameType))
    const max = this.maxMessageBytes - headerBytes
    const length = draw.pick([
      0,
      4,
      16,
      fingerprintBytes,
      fingerprintBytes + 8,
      draw.whole(0, 64),
      max,
    ])
    const payload = new Uint8Array(Math.min(length, max))
    if (draw.isOneIn(2)) for (let i = 0; i < payload.length; i++) payload[i] = draw.whole(0, 255)
    const kind = draw.isOneIn(2)
      ? header.kind
      : draw.whole(0, operations.length) | (draw.whole(0, 15) << 4)
    const begun = draw.pick([0, 0, 1, 2, 65_535])
    const pick = (own: number) => (draw.isOneIn(3) ? draw.pick(edges) : own)
    const { sequence, bucket, group, step, offset } = header
    return frame(
      {
        ...header,
        type,
        kind,
        begun,
        sequence: pick(sequence),
        bucket: pick(bucket),
        group: pick(group),
        step: pick(step),
        offset: pick(offset),
      },
      payload,
    )
  }

  set onmessage(listener: (message: Message) => void) {
    this.#inner.onmessage = listener
  }

  set onroom(listener: () => void) {
    this.#inner.onroom = listener
  }

  set onend(listener: (end: LinkEnd) => void) {
    this.#inner.onend = listener
  }

  close(detail: string): void {
    this.#inner.close(detail)
  }

  stats(): ReturnType<Link['stats']> {
    return this.#inner.stats()
  }
}
