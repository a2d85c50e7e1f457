import type { Picture } from './pixels.ts'

/** Peak signal-to-noise ratio of colours from 0 to 1. units: dB. */
export const decibelsOf = (meanSquaredError: number): number => -10 * Math.log10(meanSquaredError)

/** Returns the mean squared difference of two pictures of one size, their colours from 0 to 1. */
export function meanSquaredError(a: Picture, b: Picture): number {
  let sum = 0
  for (let i = 0; i < a.rgb.length; i++) sum += ((a.rgb[i] - b.rgb[i]) / 255) ** 2
  return sum / a.rgb.length
}

/** How much brighter the picture of the error is than the error. */
export const errorGain = 4

/** Returns how far apart two pictures of one size are, by colour channel: black where they are equal. */
export function errorPicture(a: Picture, b: Picture): Picture {
  const rgb = a.rgb.map((value, i) => Math.min(255, errorGain * Math.abs(value - b.rgb[i])))
  return { width: a.width, height: a.height, rgb }
}
