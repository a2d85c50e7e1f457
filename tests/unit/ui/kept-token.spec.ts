import { afterEach, expect, it, vi } from 'vitest'
import { tokenFor } from '../../../src/ui/room/kept-token.ts'

afterEach(() => vi.unstubAllGlobals())

it('tokenFor gives all ranks of a tab one token of the room, where the browser keeps nothing too', () => {
  const refuse = () => {
    throw new Error('blocked')
  }
  vi.stubGlobal('sessionStorage', { getItem: refuse, setItem: refuse })
  const first = tokenFor('a')
  expect(first).toMatch(/^[0-9a-f]{32}$/)
  expect(tokenFor('a')).toBe(first)
  expect(tokenFor('b')).not.toBe(first)
})
