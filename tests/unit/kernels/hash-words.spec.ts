import { expect, test } from 'vitest'
import { formatHash, hashWords } from '../../../src/kernels/hash/hash-words.ts'
import { RandomStream } from '../../../src/util/random.ts'

const draw = (count: number): Uint32Array => {
  const source = new RandomStream(1, 0)
  return Uint32Array.from({ length: count }, () => source.below(2 ** 32))
}

test('every single flipped bit changes both lanes', () => {
  const words = draw(67)
  const [a, b] = hashWords(words)
  for (let i = 0; i < words.length; i++) {
    for (let bit = 0; bit < 32; bit++) {
      const flipped = words.slice()
      flipped[i] = (flipped[i] ^ (1 << bit)) >>> 0
      const [flippedA, flippedB] = hashWords(flipped)
      expect(flippedA !== a && flippedB !== b, `bit ${bit} of word ${i}`).toBe(true)
    }
  }
})

test('the place of a word matters', () => {
  const words = draw(40)
  const hash = formatHash(hashWords(words))
  expect(formatHash(hashWords(words.slice().reverse()))).not.toBe(hash)
  const seen = new Set([hash])
  for (let i = 1; i < words.length; i++) {
    const swapped = words.slice()
    swapped[0] = words[i]
    swapped[i] = words[0]
    seen.add(formatHash(hashWords(swapped)))
  }
  expect(seen.size, 'all swaps differ').toBe(words.length)
})

test('zeros count: a longer run of them hashes differently', () => {
  const hashes = Array.from({ length: 50 }, (_, n) => formatHash(hashWords(new Uint32Array(n))))
  expect(new Set(hashes).size).toBe(50)
})

test('the formula does not change unnoticed, nor how it is written', () => {
  expect(formatHash([0, 0])).toBe('0000000000000000')
  expect(formatHash([1, 0xffff_ffff])).toBe('00000001ffffffff')
  expect(formatHash(hashWords(Uint32Array.of(0, 1, 0x3f80_0000, 0xffff_ffff)))).toBe(
    '1152ca3bdff966ae',
  )
})
