/** The most that the first load of index.html may take, all JavaScript with workers and shaders. units: bytes of gzip. */
export const firstLoadBudget = 140_000

/** Files with their sizes, the largest first, and the sum. */
export function sizeLines(sizes: ReadonlyMap<string, number>): string {
  const lines = [...sizes]
    .sort(([, a], [, b]) => b - a)
    .map(([name, bytes]) => `${kilobytes(bytes)}  ${name}`)
  return [...lines, `${kilobytes(sumOf(sizes.values()))}  in all`].join('\n')
}

export const sumOf = (sizes: Iterable<number>): number =>
  [...sizes].reduce((sum, one) => sum + one, 0)

/** units: 1 kB is 1000 bytes. */
export const kilobytes = (bytes: number): string => `${(bytes / 1000).toFixed(1)} kB`.padStart(9)
