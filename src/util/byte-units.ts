/** How people write bytes. */
export const bytesOfUnit: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
}

/** Writes bytes in the unit in which whole bytes `like` are short: of 64,000,000 in MB. */
export function inUnitsOf(like: number): (bytes: number) => string {
  const [unit, size] = Object.entries(bytesOfUnit)
    .sort(([, a], [, b]) => b - a)
    .find(([, bytes]) => bytes <= like && Number.isInteger((100 * like) / bytes))!
  return (bytes) => {
    const count = bytes / size
    return `${Number(count.toFixed(2)) || Number(count.toPrecision(1))}${unit}`
  }
}
