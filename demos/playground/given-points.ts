import { DataError } from '../../src/util/errors.ts'

/** A point that a person gives. In the page it is three numbers of a list, for a run bytes, and for an address text. */
export interface Point {
  readonly x: number
  readonly y: number
  readonly label: number
}

/** Numbers of a point: x, y and class. */
export const fieldsOfPoint = 3
export const bytesOfPoint = 4 * fieldsOfPoint
/** Min number of points to train on. */
export const fewest = 10

/** What points, three numbers each, lack to be trained on, in words; null for nothing. */
export function lacking(points: readonly number[]): string | null {
  const count = points.length / fieldsOfPoint
  if (count < fewest) return `${fewest - count} more needed`
  const labels = new Set(points.filter((_, i) => i % fieldsOfPoint === 2))
  const missing = [0, 1].find((label) => !labels.has(label))
  return missing === undefined ? null : `class ${missing} needs some`
}

/** One in this many points is held out, beginning with the first. */
export const heldOut = 5
/** How many of `count` points are for training. */
export const trainingPoints = (count: number): number => count - Math.ceil(count / heldOut)

/** Returns points, three numbers each, as a run takes them. shape: float32, little endian */
export const pointsToBytes = (points: readonly number[]): Uint8Array<ArrayBuffer> =>
  new Uint8Array(Float32Array.from(points).buffer)

/** Returns the points of such bytes. errors: `data.malformed`. */
export function pointsFromBytes(bytes: Uint8Array<ArrayBuffer>): Point[] {
  const count = bytes.length / bytesOfPoint
  if (!Number.isInteger(count) || count < fewest)
    throw malformed(
      `${bytes.length} bytes are not ${fewest} or more points of ${bytesOfPoint} bytes`,
    )
  const values = new Float32Array(bytes.slice().buffer)
  return Array.from({ length: count }, (_, i) => {
    const [x, y, label] = values.subarray(fieldsOfPoint * i)
    if (!(Math.abs(x) <= 1 && Math.abs(y) <= 1))
      throw malformed(`point ${i} is at (${x}, ${y}), not within -1 to 1`)
    if (label !== 0 && label !== 1) throw malformed(`point ${i} has class ${label}, not 0 or 1`)
    return { x, y, label }
  })
}

const malformed = (problem: string) =>
  new DataError('data.malformed', `points: ${problem}. Draw them again.`)

/**
 * Points as text for an address: three characters of base64url each, 18 bits: 0, the class, and x and y as whole numbers from 0 to 255, which
 * stand for -1 to 1.
 */
const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
const charactersEach = 3
/** So that an address stays below 2,000 characters. */
export const maxInLink = 600

const finest = 255

/** The place that is nearest to one from -1 to 1, of those that an address can hold. */
export const onGrid = (at: number): number => (2 * wholeOf(at)) / finest - 1

const wholeOf = (at: number) => Math.round(((at + 1) / 2) * finest)

/** Returns points, three numbers each, as text; null for too many. They are read back as they are if they were `onGrid`. */
export function pointsToText(points: readonly number[]): string | null {
  const count = points.length / fieldsOfPoint
  if (count > maxInLink) return null
  return Array.from({ length: count }, (_, i) => {
    const [x, y, label] = points.slice(fieldsOfPoint * i)
    const bits = label * 2 ** 16 + wholeOf(x) * 2 ** 8 + wholeOf(y)
    return digits[bits >> 12] + digits[(bits >> 6) % 64] + digits[bits % 64]
  }).join('')
}

/** Returns the points of such a text, three numbers each. errors: `data.malformed`. */
export function pointsFromText(text: string): number[] {
  const count = text.length / charactersEach
  const values = Array.from(text, (letter) => digits.indexOf(letter))
  const isText = Number.isInteger(count) && count >= fewest && count <= maxInLink
  if (!isText || values.some((value, i) => value < 0 || (i % 3 === 0 && value > 31))) {
    throw new DataError(
      'data.malformed',
      `points in the address: these ${text.length} characters are not ${fewest} to ${maxInLink} points of ${charactersEach} base64url characters. Copy the whole address, or draw the points again.`,
    )
  }
  return Array.from({ length: count }, (_, i) => {
    const [high, middle, low] = values.slice(charactersEach * i)
    const bits = high * 2 ** 12 + middle * 2 ** 6 + low
    const at = (whole: number) => (2 * whole) / finest - 1
    return [at((bits >> 8) % 256), at(bits % 256), bits >> 16]
  }).flat()
}
