type Colour = readonly [red: number, green: number, blue: number]

/** Class 0 dark and blue, class 1 light and orange: they differ in hue and in lightness. */
const classColours: readonly [Colour, Colour] = [
  [52, 121, 181],
  [255, 197, 112],
]

/** Where it is undecided the paper shows. */
export const undecided: Colour = [241, 239, 233]

/** Steps from undecided to a class: more than a screen's levels. */
const steps = 256

/** Pixels by leaning, from class 0 over undecided to class 1: a plane has thousands, and is drawn several times a second. */
const pixels = tableOf(2 * steps + 1)

/** A square picture of what leans from class 0, -1, over 0 to class 1, 1. shape: side², the first row at the bottom. */
export function pictureOfLeanings(side: number, leaningAt: (i: number) => number): ImageData {
  const image = new ImageData(side, side)
  const drawn = new Uint32Array(image.data.buffer)
  for (let row = 0; row < side; row++) {
    const line = (side - 1 - row) * side
    for (let column = 0; column < side; column++) {
      const leaning = leaningAt(row * side + column)
      // One that is no number shows as undecided.
      drawn[line + column] = pixels[Math.round(steps * (1 + leaning))] || pixels[steps]
    }
  }
  return image
}

function tableOf(count: number): Uint32Array {
  const bytes = new Uint8ClampedArray(4 * count)
  for (let i = 0; i < count; i++) {
    const leaning = i / steps - 1
    const towards = classColours[leaning < 0 ? 0 : 1]
    // The root makes a slight leaning visible.
    const share = Math.sqrt(Math.abs(leaning))
    for (let part = 0; part < 3; part++)
      bytes[4 * i + part] = undecided[part] + share * (towards[part] - undecided[part])
    bytes[4 * i + 3] = 255
  }
  return new Uint32Array(bytes.buffer)
}
