import { beforeEach, expect, test } from 'vitest'
import { Halves } from '../../../src/peer/server/halves.ts'

// Members a to d, each in its first life, of a roster with ballot 5.

const lives = (ids: string) => [...ids].map((id) => `${id}.1`)
const newest = (ballot: number, ids: string) => ({ ballot, members: [...ids] })
const ask = (who: string, { ballot = 5, alive = 'abcd', known = newest(5, 'abcd') } = {}) =>
  halves.first({ ballot, alive: lives(alive), lives: lives(who) }, known)?.join()

let halves: Halves
beforeEach(() => {
  halves = new Halves()
})
const hear = (ids: string) => {
  for (const id of ids) halves.heard(id)
}

test('the half that asks first stays the first', () => {
  hear('abcd')
  expect(ask('ab')).toBe('a.1,b.1')
  expect(ask('cd')).toBe('a.1,b.1')
})

test('a server that has not heard of a member since it started cannot know', () => {
  hear('abc')
  expect(ask('ab')).toBeUndefined()
  // Dead ones have asked nobody.
  expect(ask('ab', { alive: 'abc' })).toBe('a.1,b.1')
})

test('a half that is not in the newest roster came later', () => {
  hear('abcd')
  const known = newest(6, 'abx')
  expect(ask('cd', { known })).toBeUndefined()
  expect(ask('ab', { known })).toBe('a.1,b.1')
})

test('Halves keeps the newest rosters only when there are many', () => {
  hear('abcd')
  for (let ballot = 5; ballot < 70; ballot++)
    expect(ask('ab', { ballot, known: newest(ballot, 'abcd') })).toBe('a.1,b.1')
  expect(ask('cd', { ballot: 69, known: newest(69, 'abcd') })).toBe('a.1,b.1')
  expect(ask('cd', { known: newest(5, 'abcd') })).toBeUndefined()
})
