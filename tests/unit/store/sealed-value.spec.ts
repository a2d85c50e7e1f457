import { createDecipheriv, createHmac, hkdfSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { newRoomLink, RoomSecret } from '../../../src/peer/room/secret.ts'
import { boxCharsOf } from '../../../src/peer/store/box-chars.ts'
import { ValueSeal } from '../../../src/peer/tab/sealed-value.ts'

const link = newRoomLink()
const value = new Uint8Array([0, 1, 255, 7])

describe('sealed values', () => {
  it('open under their key, in their room, for holders of the link', async () => {
    const [ours, theirs] = await Promise.all([ValueSeal.derive(link), ValueSeal.derive(link)])
    const { box, tag } = await ours.seal('k', value)
    expect(await theirs.open('k', box)).toEqual(value)
    expect(await theirs.tag('k', value)).toBe(tag)
    const stranger = await ValueSeal.derive(newRoomLink())
    for (const [seal, key] of [
      [theirs, 'l'],
      [stranger, 'k'],
    ] as const) {
      await expect(seal.open(key, box)).rejects.toMatchObject({ code: 'peer.protocol' })
      expect(await seal.tag(key, value)).not.toBe(tag)
    }
  })

  it('any changed, cut or invented box is refused', async () => {
    const seal = await ValueSeal.derive(link)
    const { box } = await seal.seal('k', value)
    for (let i = 0; i < box.length - 1; i++) {
      const changed = box.slice(0, i) + (box[i] === 'A' ? 'B' : 'A') + box.slice(i + 1)
      await expect(seal.open('k', changed)).rejects.toMatchObject({ code: 'peer.protocol' })
    }
    for (const bad of ['', 'A', box.slice(0, 20), box.slice(0, -4), '!!!!', '€']) {
      await expect(seal.open('k', bad)).rejects.toThrow(/tampering/)
    }
  })

  it('tags differ when key and value differ but are the same bytes together', async () => {
    const seal = await ValueSeal.derive(link)
    const bytes = (text: string) => new TextEncoder().encode(text)
    expect(await seal.tag('ab', bytes('c'))).not.toBe(await seal.tag('a', bytes('bc')))
  })

  it('have the stated length, for an empty value too', async () => {
    const seal = await ValueSeal.derive(link)
    for (const length of [0, 1, 2, 3, 1000, 16_384]) {
      const { box } = await seal.seal('k', new Uint8Array(length))
      expect(box).toHaveLength(boxCharsOf(length))
    }
  })

  it('match the format in the docstring, by node:crypto as a second implementation', async () => {
    const { box, tag } = await (await ValueSeal.derive(link)).seal('schlüssel', value)
    const { room } = await RoomSecret.derive(link)
    const derived = (info: string) =>
      Buffer.from(hkdfSync('sha256', Buffer.from(link.key, 'base64url'), room, info, 32))
    const bytes = Buffer.from(box, 'base64url')
    const cipher = createDecipheriv(
      'aes-256-gcm',
      derived('tabring store 1'),
      bytes.subarray(0, 12),
    )
    cipher.setAAD(Buffer.from(`${room} schlüssel`)).setAuthTag(bytes.subarray(-16))
    const plain = Buffer.concat([cipher.update(bytes.subarray(12, -16)), cipher.final()])
    expect([...plain]).toEqual([...value])
    const name = Buffer.from('schlüssel')
    const length = Buffer.from([0, 0, 0, name.length])
    const expected = createHmac('sha256', derived('tabring store tag 1'))
      .update(Buffer.concat([length, name, value]))
      .digest('base64url')
    expect(tag).toBe(expected)
  })
})
