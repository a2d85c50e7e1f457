import { vi } from 'vitest'
import { idxBytes } from './idx-bytes.ts'

/**
 * Answers `fetch` with the four files of a small data set, whatever the folder: `brightness(address, i)` is byte i of its images.
 *
 * Undo it with `vi.restoreAllMocks()`.
 */
export function serveDigits(
  count: number,
  brightness: (address: URL, index: number) => number,
): void {
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (address) => {
    const url = new URL(String(address))
    if (!/(train|test)-(images-idx3|labels-idx1)-ubyte$/.test(url.pathname))
      return new Response(null, { status: 404 })
    return new Response(
      url.pathname.includes('-images-')
        ? idxBytes([count, 28, 28], (i) => brightness(url, i))
        : idxBytes([count], (i) => i % 10),
    )
  })
}
