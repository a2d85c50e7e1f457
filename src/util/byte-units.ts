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
    // Rounded up: what does not fit must not read as if it did.
    const count = Math.ceil(Number(((100 * bytes) / size).toFixed(6))) / 100
    return bytes > 0 && 100 * bytes < size ? `${bytes}B` : `${count}${unit}`
  }
}
