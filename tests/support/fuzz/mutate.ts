import type { Draw } from '../simulation/draw.ts'

/** Valid input made wrong: bytes, text and JSON. Lengths stay within a small multiple of the input's. */

const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`

/** Values that no reader expects, as JSON. */
export const hostileJson: readonly string[] = [
  '5',
  '-1',
  '1.5',
  '1e308',
  '1e999',
  'null',
  'true',
  '""',
  `"${'x'.repeat(5000)}"`,
  '"\\ud800"',
  '"\\u0000\\u001b[2J"',
  '"../../etc/passwd"',
  '"__proto__"',
  '[]',
  '[[[]]]',
  '{}',
  '{"toString":1,"valueOf":1}',
  '{"$tensor":{"toString":1}}',
  '{"$tensor":"model.0.weight"}',
  '{"$number":{"toString":1}}',
  '{"$number":"x"}',
  '{"length":4294967295}',
  '{"__proto__":{"shape":[1]}}',
  '[4294967295]',
  '[null]',
  nested(20_000),
]

/** The text of `json` with one of its values replaced, taken out, or given again under its name. */
export function mutatedJson(json: unknown, draw: Draw): string {
  const paths: (readonly string[])[] = []
  const walk = (value: unknown, path: readonly string[]) => {
    if (path.length > 0) paths.push(path)
    if (typeof value === 'object' && value !== null)
      for (const key of Object.keys(value)) walk(Reflect.get(value, key), [...path, key])
  }
  walk(json, [])
  if (paths.length === 0 || draw.isOneIn(30)) return draw.pick(hostileJson)
  const path = draw.pick(paths)
  const copy = structuredClone(json) as Record<string, unknown>
  let at: Record<string, unknown> = copy
  for (const key of path.slice(0, -1)) at = at[key] as Record<string, unknown>
  const last = path.at(-1)!
  const mark = '@hostile@'
  if (draw.isOneIn(7)) Reflect.deleteProperty(at, last)
  else if (draw.isOneIn(8) && !Array.isArray(at)) at[draw.pick(hostileKeys)] = mark
  else if (draw.isOneIn(6) && Array.isArray(at)) at.push(...at, mark)
  else at[last] = mark
  const written = JSON.stringify(copy).replaceAll(`"${mark}"`, () => draw.pick(hostileJson))
  // The last of two equal names counts.
  if (!draw.isOneIn(10) || !written.startsWith('{')) return written
  return `${written.slice(0, -1)},${JSON.stringify(path[0])}:${draw.pick(hostileJson)}}`
}

const hostileKeys = ['__proto__', 'constructor', 'toString', 'length', '', '$tensor', 'x']

/** Text with a few characters changed, taken out, put in or doubled. */
export function mutatedText(text: string, draw: Draw): string {
  let out = text
  for (let edits = draw.whole(1, 4); edits > 0; edits--) {
    const at = draw.whole(0, out.length)
    const rest = out.slice(at + draw.whole(0, draw.isOneIn(4) ? 40 : 2))
    const added = draw.pick([
      () => '',
      () => String.fromCharCode(draw.whole(0, 255)),
      () => String.fromCharCode(draw.whole(0, 0xffff)),
      () => draw.pick(hostileText),
      () => out.slice(at, at + draw.whole(1, 60)),
      () => draw.pick(hostileText).repeat(draw.whole(1, 200)),
    ])()
    out = out.slice(0, at) + added + rest
  }
  return out
}

const hostileText = [
  '"',
  '""',
  '\\',
  ',',
  ';',
  '\t',
  '\r',
  '\n',
  '\r\n',
  '{',
  '}',
  '[',
  ']',
  ':',
  '\0',
  '\ufeff',
  '\ud800',
  '\u202e',
  '0',
  '1e999',
  '-',
  'NaN',
  '__proto__',
  '99999999999999999999',
]

const edges = [0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 2 ** 31 - 1]

/** Bytes with flipped bits, other lengths, or parts that are missing, doubled or somewhere else. `others`: whose parts may be spliced in. */
export function mutatedBytes(
  bytes: Uint8Array,
  draw: Draw,
  others: readonly Uint8Array[] = [bytes],
): Uint8Array<ArrayBuffer> {
  let out = bytes.slice()
  for (let edits = draw.whole(1, draw.isOneIn(3) ? 8 : 2); edits > 0; edits--) {
    out = draw.pick(everyEdit)(out, draw, others)
  }
  return out
}

type Edit = (
  bytes: Uint8Array<ArrayBuffer>,
  draw: Draw,
  others: readonly Uint8Array[],
) => Uint8Array<ArrayBuffer>

/** Headers stand at the beginning, where most edits go. */
const placeIn = (length: number, draw: Draw) =>
  draw.whole(0, Math.max(0, (draw.isOneIn(2) ? Math.min(length, 64) : length) - 1))

const joined = (...parts: readonly Uint8Array[]) => {
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

const flip: Edit = (bytes, draw) => {
  if (bytes.length > 0) bytes[placeIn(bytes.length, draw)]! ^= 1 << draw.whole(0, 7)
  return bytes
}

const overwrite: Edit = (bytes, draw) => {
  const at = placeIn(bytes.length, draw)
  const end = Math.min(bytes.length, at + draw.whole(1, 8))
  const value = draw.pick([0, 0xff, 0x80, undefined])
  for (let i = at; i < end; i++) bytes[i] = value ?? draw.whole(0, 255)
  return bytes
}

const cut: Edit = (bytes, draw) => bytes.slice(0, draw.whole(0, bytes.length))

const takeOut: Edit = (bytes, draw) => {
  const at = placeIn(bytes.length, draw)
  return joined(bytes.subarray(0, at), bytes.subarray(at + draw.whole(1, 16)))
}

/** The beginning once more, or a part of another input. */
const splice: Edit = (bytes, draw, others) => {
  const other = others.length > 0 ? draw.pick(others) : bytes
  const from = draw.isOneIn(2) ? 0 : placeIn(other.length, draw)
  const part = other.subarray(from, from + draw.whole(1, 64))
  const at = draw.isOneIn(3) ? 0 : placeIn(bytes.length, draw)
  return joined(
    bytes.subarray(0, at),
    part,
    bytes.subarray(at + (draw.isOneIn(2) ? 0 : part.length)),
  )
}

/** A number of 2, 4 or 8 bytes, wherever one may stand. */
const length: Edit = (bytes, draw) => {
  const width = draw.pick([2, 4, 8])
  if (bytes.length < width) return bytes
  const view = new DataView(bytes.buffer)
  const at = Math.min(
    bytes.length - width,
    placeIn(bytes.length, draw) & ~(draw.pick([1, width]) - 1),
  )
  const isLittle = draw.isOneIn(2)
  const edge = draw.pick([...edges, bytes.length, 2 ** 32 - 1, 2 ** 32 - draw.whole(1, 64)])
  if (width === 2) {
    const now = view.getUint16(at, isLittle)
    view.setUint16(at, draw.isOneIn(2) ? edge : now + draw.pick([1, -1, 4]), isLittle)
  } else if (width === 4) {
    const now = view.getUint32(at, isLittle)
    view.setUint32(at, draw.isOneIn(2) ? edge : now + draw.pick([1, -1, 4]), isLittle)
  } else view.setBigUint64(at, BigInt(edge) << BigInt(draw.pick([0, 0, 8, 31])), isLittle)
  return bytes
}

const everyEdit: readonly Edit[] = [
  flip,
  flip,
  flip,
  overwrite,
  cut,
  takeOut,
  splice,
  length,
  length,
]

/** Bytes that are nothing. */
export const garbage = (draw: Draw, max: number): Uint8Array<ArrayBuffer> =>
  Uint8Array.from({ length: draw.whole(0, max) }, () => draw.whole(0, 255))
