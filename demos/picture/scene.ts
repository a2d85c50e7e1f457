import { type Pixels, packPixels } from './pixels.ts'

/** Red, green and blue from 0 to 1. */
type Colour = readonly [red: number, green: number, blue: number]

/** Looks into each pixel, along each side, so that edges are smooth. */
const samplesASide = 3

/** Returns the built-in picture: a boat on the sea, the sun behind it, hills and a lighthouse. It has edges, gradients and small things. */
export function drawScene(width = 96, height = 96): Pixels {
  const rgb = new Uint8Array(3 * width * height)
  for (let pixel = 0; pixel < width * height; pixel++) {
    const sum = [0, 0, 0]
    for (let i = 0; i < samplesASide * samplesASide; i++) {
      const x = ((pixel % width) + ((i % samplesASide) + 0.5) / samplesASide) / width
      const y =
        (Math.floor(pixel / width) + (Math.floor(i / samplesASide) + 0.5) / samplesASide) / height
      colourAt(x, y).forEach((value, channel) => {
        sum[channel] += value
      })
    }
    rgb.set(
      sum.map((value) => Math.round((255 * value) / samplesASide ** 2)),
      3 * pixel,
    )
  }
  return packPixels(width, height, rgb)
}

const horizon = 0.6

/** The colour at a place; x to the right and y down, from 0 to 1. What is in front comes first. */
function colourAt(x: number, y: number): Colour {
  return boat(x, y) ?? lighthouse(x, y) ?? hill(x, y) ?? (y < horizon ? sky(x, y) : sea(x, y))
}

function boat(x: number, y: number): Colour | null {
  // Hull: wider above than below.
  if (y > 0.7 && y < 0.78 && Math.abs(x - 0.36) < 0.2 - 0.9 * (y - 0.7)) {
    return y < 0.72 ? [0.98, 0.93, 0.85] : [0.6, 0.12, 0.14]
  }
  if (y > 0.24 && y < 0.7 && Math.abs(x - 0.36) < 0.007) return [0.25, 0.16, 0.1]
  // Two sails, from the top of the mast down.
  const down = (y - 0.27) / 0.4
  if (down < 0 || down > 1) return null
  if (x > 0.375 && x < 0.375 + 0.17 * down) return [1, 0.97 - 0.1 * down, 0.9 - 0.2 * down]
  if (x < 0.345 && x > 0.345 - 0.13 * down) return [0.93, 0.42 + 0.2 * down, 0.2]
  return null
}

function lighthouse(x: number, y: number): Colour | null {
  const aside = Math.abs(x - 0.86)
  if (y > 0.2 && y < 0.235 && aside < (y - 0.2) * 1.1) return [0.55, 0.1, 0.12]
  if (y >= 0.235 && y < 0.275 && aside < 0.025) return [1, 0.95, 0.55]
  if (y < 0.275 || y > 0.53 || aside > 0.028 + 0.06 * (y - 0.275)) return null
  return Math.floor((y - 0.275) / 0.051) % 2 === 0 ? [0.96, 0.95, 0.93] : [0.78, 0.16, 0.17]
}

function hill(x: number, y: number): Colour | null {
  if (y >= horizon) return null
  const near = 0.6 - 0.11 * Math.exp(-(((x - 0.88) / 0.16) ** 2))
  if (y > near) return [0.1, 0.22 + 0.2 * (0.6 - y), 0.18]
  const far = 0.56 - 0.09 * Math.sin(3 + 5 * x) - 0.02 * Math.sin(17 * x)
  return y > far ? [0.42, 0.3, 0.45] : null
}

function sky(x: number, y: number): Colour {
  const away = Math.hypot(x - 0.62, y - 0.37)
  if (away < 0.1) return [1, 0.93, 0.62]
  const t = y / horizon
  const glow = 0.45 * Math.exp(-6 * (away - 0.1))
  return [
    Math.min(1, 0.16 + 0.75 * t + glow),
    Math.min(1, 0.24 + 0.3 * t + 0.7 * glow),
    Math.max(0, 0.52 - 0.12 * t),
  ]
}

function sea(x: number, y: number): Colour {
  const t = (y - horizon) / (1 - horizon)
  const path = Math.exp(-(((x - 0.62) / (0.05 + 0.12 * t)) ** 2))
  const waves = 0.5 + 0.5 * Math.sin(90 * Math.sqrt(t + 0.05) + 4 * Math.sin(9 * x))
  const shine = path * waves * 0.75
  return [0.12 + shine, 0.3 - 0.14 * t + 0.7 * shine, 0.46 - 0.2 * t + 0.2 * shine]
}
