import { RandomStream } from '../../src/util/random.ts'
import { heldOut, type Point, pointsFromBytes } from './given-points.ts'
import type { Shape } from './meta.ts'

/** Points in the plane, of two classes, in the order of their angle around the middle. */
export interface Points {
  readonly count: number
  /** shape: [count, 2], from -1 to 1 */
  readonly at: Float32Array<ArrayBuffer>
  /** shape: [count], 0 or 1 */
  readonly classes: Int32Array<ArrayBuffer>
}

/** How far points are strewn. */
const noise = 0.03

/** One point of class `label`, at random; `t` goes from 0 to 1 over the shape. */
const shapes: Readonly<
  Record<Shape, (label: number, random: RandomStream) => readonly [x: number, y: number]>
> = {
  spiral: (label, random) => {
    const t = Math.sqrt(random.unit())
    const angle = 1.5 * 2 * Math.PI * t + label * Math.PI
    return [0.9 * t * Math.cos(angle), 0.9 * t * Math.sin(angle)]
  },
  circles: (label, random) => {
    const angle = 2 * Math.PI * random.unit()
    const radius = label === 0 ? random.between(0, 0.4) : random.between(0.6, 0.9)
    return [radius * Math.cos(angle), radius * Math.sin(angle)]
  },
  xor: (label, random) => {
    const x = random.between(0.05, 0.95)
    const y = random.between(0.05, 0.95)
    const isLeft = random.below(2) === 0
    const isBelow = isLeft === (label === 0)
    return [isLeft ? -x : x, isBelow ? -y : y]
  },
  moons: (label, random) => {
    const angle = Math.PI * random.unit()
    const side = label === 0 ? 1 : -1
    return [0.55 * side * Math.cos(angle) - 0.27 * side, side * (0.55 * Math.sin(angle) - 0.13)]
  },
}

/** Returns `count` points of a built-in shape; half of them, or one more, are of class 0. Another `stream` has other points. */
function drawPoints(shape: string, stream: number, count: number): Points {
  const random = new RandomStream(0, stream, 'general')
  const strew = () => random.between(-noise, noise)
  const points = Array.from({ length: count }, (_, i): Point => {
    const label = i % 2
    const [x, y] = shapes[shape as Shape](label, random)
    return { x: clip(x + strew()), y: clip(y + strew()), label }
  })
  return packPoints(points)
}

/** Returns a built-in shape's points for training and those held out. */
export const drawSplits = (shape: string): { train: Points; test: Points } => ({
  train: drawPoints(shape, 0, 480),
  test: drawPoints(shape, 1, 240),
})

/** Returns the points that a person gave, as `pointsToBytes` has them, one in five of them held out. errors: `data.malformed`. */
export function readPoints(bytes: Uint8Array<ArrayBuffer>): { train: Points; test: Points } {
  const points = pointsFromBytes(bytes)
  return {
    train: packPoints(points.filter((_, i) => i % heldOut > 0)),
    test: packPoints(points.filter((_, i) => i % heldOut === 0)),
  }
}

/** By angle, so that a contiguous part of them is a sector of the plane. */
function packPoints(points: readonly Point[]): Points {
  const ordered = points
    .map((point) => ({ ...point, angle: Math.atan2(point.y, point.x) }))
    .sort((a, b) => a.angle - b.angle)
  return {
    count: ordered.length,
    at: Float32Array.from(ordered.flatMap(({ x, y }) => [x, y])),
    classes: Int32Array.from(ordered, ({ label }) => label),
  }
}

const clip = (value: number) => Math.max(-1, Math.min(1, value))
