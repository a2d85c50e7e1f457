/** The pixels of one interlacing pass: every dx-th column from x, every dy-th row from y. */
export interface Pass {
  readonly x: number
  readonly y: number
  readonly dx: number
  readonly dy: number
}

/** The seven passes of an interlaced file. */
export const adam7: readonly Pass[] = [
  { x: 0, y: 0, dx: 8, dy: 8 },
  { x: 4, y: 0, dx: 8, dy: 8 },
  { x: 0, y: 4, dx: 4, dy: 8 },
  { x: 2, y: 0, dx: 4, dy: 4 },
  { x: 0, y: 2, dx: 2, dy: 4 },
  { x: 1, y: 0, dx: 2, dy: 2 },
  { x: 0, y: 1, dx: 1, dy: 2 },
]

/** By colour type: grey, -, RGB, palette, grey with alpha, -, RGB with alpha. */
export const samplesAPixel: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }

export interface UnpackedHeader {
  readonly width: number
  readonly height: number
  /** Bits a sample. */
  readonly depth: number
  readonly colourType: number
}

/**
 * Undoes the rows' filters in place: each row is a byte that names its filter and `rowBytes` that hold differences from what the filter
 * predicts of the bytes `distance` to the left, above, and left above. False for a filter that there is not.
 */
export function unfilter(rows: Uint8Array, rowBytes: number, distance: number): boolean {
  const stride = rowBytes + 1
  // What is left of the first pixel or above the first row counts as 0.
  let above: Uint8Array = new Uint8Array(rowBytes)
  for (let start = 1; start < rows.length; start += stride) {
    const row = rows.subarray(start, start + rowBytes)
    const filter = rows[start - 1]
    if (filter > 4) return false
    if (filter === 1) {
      for (let i = distance; i < rowBytes; i++) row[i] += row[i - distance]
    } else if (filter === 2) {
      for (let i = 0; i < rowBytes; i++) row[i] += above[i]
    } else if (filter === 3) {
      for (let i = 0; i < distance && i < rowBytes; i++) row[i] += above[i] >> 1
      for (let i = distance; i < rowBytes; i++) row[i] += (row[i - distance] + above[i]) >> 1
    } else if (filter === 4) {
      for (let first = 0; first < distance; first++) addNearest(row, above, first, distance)
    }
    above = row
  }
  return true
}

/** Paeth's filter for every `distance`-th byte from `first` on: whichever of left, up and corner is nearest to left + up - corner. */
function addNearest(row: Uint8Array, above: Uint8Array, first: number, distance: number): void {
  let left = 0
  let corner = 0
  for (let i = first; i < row.length; i += distance) {
    const up = above[i]
    const a = up - corner
    const b = left - corner
    const toLeft = a < 0 ? -a : a
    const toUp = b < 0 ? -b : b
    const toCorner = a + b < 0 ? -a - b : a + b
    const predicted = toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner
    left = (row[i] + predicted) & 0xff
    row[i] = left
    corner = up
  }
}

/** Writes a pass's unfiltered rows to their places in `rgb`, [height, width, 3]. */
export function unpack(
  rows: Uint8Array,
  pass: Pass & { readonly width: number; readonly height: number; readonly rowBytes: number },
  { width, depth, colourType }: UnpackedHeader,
  palette: Uint8Array | undefined,
  rgb: Uint8Array,
): void {
  const sampleBytes = depth === 16 ? 2 : 1
  const pixelBytes = sampleBytes * samplesAPixel[colourType]
  const isColour = colourType === 2 || colourType === 6
  const highest = 2 ** depth - 1
  // Fewer than 8 bits: the leftmost pixel is in the uppermost ones.
  const small = (start: number, i: number) =>
    (rows[start + ((i * depth) >> 3)] >> (8 - depth - ((i * depth) & 7))) & highest
  for (let row = 0; row < pass.height; row++) {
    const start = row * (pass.rowBytes + 1) + 1
    let to = ((pass.y + row * pass.dy) * width + pass.x) * 3
    if (isColour) {
      let at = start
      for (let i = 0; i < pass.width; i++, to += pass.dx * 3, at += pixelBytes) {
        rgb[to] = rows[at]
        rgb[to + 1] = rows[at + sampleBytes]
        rgb[to + 2] = rows[at + 2 * sampleBytes]
      }
      continue
    }
    for (let i = 0; i < pass.width; i++, to += pass.dx * 3) {
      const at = start + i * pixelBytes
      if (palette && colourType === 3) {
        const entry = 3 * (depth < 8 ? small(start, i) : rows[at])
        // An entry that the palette does not have is black.
        rgb[to] = palette[entry] ?? 0
        rgb[to + 1] = palette[entry + 1] ?? 0
        rgb[to + 2] = palette[entry + 2] ?? 0
      } else {
        const grey = depth < 8 ? (small(start, i) * 255) / highest : rows[at]
        rgb[to] = grey
        rgb[to + 1] = grey
        rgb[to + 2] = grey
      }
    }
  }
}
