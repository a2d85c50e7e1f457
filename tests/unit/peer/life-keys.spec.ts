import { beforeAll, describe, expect, test, vi } from 'vitest'
import {
  type LifeKeys,
  LifeSigner,
  maxKeys,
  newLifeKeys,
} from '../../../src/peer/room/life-keys.ts'
import { keyHashOf, lifeOf, memberOf } from '../../../src/peer/room/lives.ts'

// With the platform's cryptography.

let keys: LifeKeys
let others: LifeKeys
let life: string
let signer: LifeSigner

beforeAll(async () => {
  ;[keys, others] = await Promise.all([newLifeKeys(), newLifeKeys()])
  life = lifeOf({ id: 'ab'.repeat(8), keyHash: keys.hash }, 7)
  signer = new LifeSigner(keys, 'run')
})

test("a life's name has the id in the room, and the hash of its key", () => {
  expect(life).toMatch(/^(ab){8}\.7\.[\w-]{16}$/)
  expect(memberOf(life)).toBe('ab'.repeat(8))
  expect(keyHashOf(life)).toBe(keys.hash)
  expect(keys.secret.extractable).toBe(false)
})

describe('a signature', () => {
  test('is valid for the life that signed the text, for any checker, any number of times', async () => {
    const signed = await signer.sign('text')
    expect(signed).toEqual({
      key: expect.stringMatching(/^[\w-]{87}$/),
      signature: expect.stringMatching(/^[\w-]{86}$/),
    })
    const checker = new LifeSigner(others, 'run')
    for (let time = 0; time < 2; time++)
      expect(await checker.verify(life, 'text', signed)).toBe(true)
  })

  test('is refused for another text, life or run', async () => {
    const signed = await signer.sign('text')
    const ofOther = lifeOf({ id: 'ab'.repeat(8), keyHash: others.hash }, 7)
    expect(await signer.verify(life, 'text ', signed)).toBe(false)
    expect(await signer.verify(ofOther, 'text', signed)).toBe(false)
    expect(await signer.verify('ab', 'text', signed)).toBe(false)
    expect(await new LifeSigner(others, 'other').verify(life, 'text', signed)).toBe(false)
  })

  test('by another key is refused, even with the right key beside it', async () => {
    const forged = await new LifeSigner(others, 'run').sign('text')
    expect(await signer.verify(life, 'text', forged)).toBe(false)
    expect(await signer.verify(life, 'text', { ...forged, key: keys.key })).toBe(false)
  })

  test('is checked with a key that is imported once, until enough other keys were used', async () => {
    const signed = await signer.sign('text')
    const checker = new LifeSigner(others, 'run')
    const reads = vi.spyOn(crypto.subtle, 'importKey')
    const check = (name: string) => checker.verify(name, 'text', signed)
    for (let time = 0; time < 2; time++) expect(await check(life)).toBe(true)
    expect(reads).toHaveBeenCalledTimes(1)
    for (let at = 0; at < maxKeys; at++) await check(lifeOf({ id: `${at}`, keyHash: keys.hash }, 1))
    expect(await check(life)).toBe(true)
    expect(reads).toHaveBeenCalledTimes(maxKeys + 2)
    reads.mockRestore()
  })

  test.each(['', 'x', '_'.repeat(86), '-'.repeat(87)])('"%s" is refused', async (text) => {
    const signed = await signer.sign('text')
    expect(await signer.verify(life, 'text', { ...signed, signature: text })).toBe(false)
    expect(await signer.verify(life, 'text', { ...signed, key: text })).toBe(false)
  })
})
