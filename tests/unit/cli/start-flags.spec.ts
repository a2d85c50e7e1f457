import { describe, expect, test } from 'vitest'
import { usageProblem } from '../../../node/command-line.ts'
import { startFlags } from '../../../node/start-flags.ts'

/** The command line of `npm start`. */

test('without flags asks for nothing', () => {
  expect(startFlags([])).toEqual({})
})

describe('takes', () => {
  test.each<[string[], object]>([[['--trust-proxy'], { trustProxy: true }]])(
    '%j',
    (argv, expected) => {
      expect(startFlags(argv)).toEqual(expected)
    },
  )
})

/** What a person reads. */
function problemOf(...argv: string[]): string {
  try {
    startFlags(argv)
  } catch (thrown) {
    return usageProblem(thrown)
  }
  return ''
}

describe('refuses', () => {
  test.each([
    [['--trust-proxys'], '--trust-proxys: there is no such flag. Did you mean --trust-proxy?'],
  ])('%j', (argv, text) => {
    expect(problemOf(...argv)).toBe(text)
  })
})
