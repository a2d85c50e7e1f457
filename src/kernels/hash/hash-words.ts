/** Wellons' lowbias32. */
export function mixA(start: number): number {
  let z = start
  z = Math.imul(z ^ (z >>> 16), 0x7feb352d)
  z = Math.imul(z ^ (z >>> 15), 0x846ca68b)
  return z ^ (z >>> 16)
}

/** MurmurHash3's 32-bit finalizer. */
function mixB(start: number): number {
  let z = start
  z = Math.imul(z ^ (z >>> 16), 0x85ebca6b)
  z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35)
  return z ^ (z >>> 16)
}

/**
 * Returns the hash that `paramHash` computes on the device, from the same bits on the host.
 *
 * `begin`: leaves out the words before it; those from there on add what they add to the whole hash.
 * source: param-hash.ts, which holds the formula.
 */
export function hashWords(words: Uint32Array, begin = 0): [number, number] {
  let a = 0
  let b = 0
  for (let i = begin; i < words.length; i++) {
    const bits = words[i]
    a = (a + mixA(bits ^ mixB(i))) | 0
    b = (b + mixB((bits + mixA(~i)) | 0)) | 0
  }
  return [a >>> 0, b >>> 0]
}

/** 16 hexadecimal digits, lane a first. */
export const formatHash = (hash: ArrayLike<number>): string =>
  [hash[0], hash[1]].map((lane) => (lane >>> 0).toString(16).padStart(8, '0')).join('')
