import { expect, test } from 'vitest'
import { describeDifference } from '../../../src/ddp/hashes/replica-check.ts'

test.each([
  [['a', 'a', 'a'], undefined],
  [
    ['a', 'b', 'a'],
    'hashes to a on ranks 0 and 2, but to b on rank 1. Rank 1 computed or kept wrong bits. Restart without it.',
  ],
  [
    ['b', 'a', 'a'],
    'hashes to a on ranks 1 and 2, but to b on rank 0. Rank 0 computed or kept wrong bits. Restart without it.',
  ],
  [
    ['a', 'b', 'a', 'c', 'a'],
    'hashes to a on ranks 0, 2 and 4, but to b on rank 1, c on rank 3. Ranks 1 and 3 computed or kept wrong bits. Restart without them.',
  ],
  [
    ['a', 'b'],
    'hashes to a on rank 0, but to b on rank 1. A device computed or kept wrong bits, and the hashes do not tell which. Restart, with other devices if it happens again.',
  ],
])('describeDifference names the ranks that most others contradict: %j', (hashes, text) => {
  expect(describeDifference(hashes)).toBe(text)
})
