/** What one compressed file or entry unpacks to at most: a small one may be made to fill memory. units: bytes. */
export const maxUnpacked = 2 ** 30

/**
 * Yields the bytes that compressed ones hold, part by part, so that a reader can stop at any.
 *
 * errors: what `damaged` makes of the decompressor's error.
 */
export async function* unpackedParts(
  packed: readonly Uint8Array<ArrayBuffer>[],
  format: CompressionFormat,
  damaged: (thrown: unknown) => Error,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  const reader = new Blob([...packed])
    .stream()
    .pipeThrough(new DecompressionStream(format))
    .getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((thrown: unknown) => {
        throw damaged(thrown)
      })
      if (done) return
      yield value
    }
  } finally {
    reader.cancel().catch(() => undefined)
  }
}

/** Returns the bytes of all parts; a single one as it is. */
export function joined(parts: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  if (parts.length === 1) return parts[0]
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}
