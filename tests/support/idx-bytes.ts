/** A file of bytes in the IDX format: its header, then `fill` by element. */
export function idxBytes(
  dims: readonly number[],
  fill: (index: number) => number,
): Uint8Array<ArrayBuffer> {
  const header = 4 + 4 * dims.length
  const elements = dims.reduce((product, d) => product * d, 1)
  const bytes = new Uint8Array(header + elements)
  bytes.set([0, 0, 8, dims.length])
  const view = new DataView(bytes.buffer)
  dims.forEach((d, i) => {
    view.setUint32(4 + 4 * i, d)
  })
  for (let i = 0; i < elements; i++) bytes[header + i] = fill(i)
  return bytes
}
