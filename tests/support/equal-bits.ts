import { expect } from 'vitest'

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
  new Uint8Array(buffer, byteOffset, byteLength)

function haveEqualBits(a: ArrayBufferView, b: ArrayBufferView): boolean {
  const [these, those] = [bytesOf(a), bytesOf(b)]
  return these.length === those.length && these.every((byte, at) => byte === those[at])
}

// `toEqual` visits each element by its key: two seconds for a million. Typed arrays with equal bits are equal; of others it finds the difference.
expect.addEqualityTesters([
  (a, b) =>
    ArrayBuffer.isView(a) &&
    ArrayBuffer.isView(b) &&
    a.constructor === b.constructor &&
    haveEqualBits(a, b)
      ? true
      : undefined,
])
