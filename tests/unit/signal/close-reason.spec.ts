import { expect, test } from 'vitest'
import { closeReason } from '../../../node/close-reason.ts'

// A closing frame is of 125 bytes at most (RFC 6455, 5.5), of which the code takes 2.
test.each([
  ['nothing', '', ''],
  ['what just fits', 'a'.repeat(123), 'a'.repeat(123)],
  ['one byte too many', 'a'.repeat(124), 'a'.repeat(123)],
  ['two bytes that fit', `${'a'.repeat(121)}é`, `${'a'.repeat(121)}é`],
  ['a character of two bytes across the end', `${'a'.repeat(122)}é`, 'a'.repeat(122)],
  ['one of four bytes, two units of a string', `${'a'.repeat(120)}😀`, 'a'.repeat(120)],
  ['an unreadable one of its own', 'a\ufffd', 'a\ufffd'],
])('%s', (_, text, cut) => {
  expect(closeReason(text)).toBe(cut)
})
