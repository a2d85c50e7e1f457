import { createHmac } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { roomOf, roomOfAuthKey } from '../../../node/room-of.ts'
import {
  formatFragment,
  newRoomLink,
  parseFragment,
  proofText,
  RoomSecret,
} from '../../../src/peer/room/secret.ts'

const address = { epoch: 3, from: 1, to: 2, attempt: 1 }

describe('room links', () => {
  it('survive the fragment', () => {
    const link = newRoomLink()
    expect(parseFragment(formatFragment(link))).toEqual(link)
    expect(parseFragment(formatFragment(link).slice(1))).toEqual(link)
    expect(formatFragment(link)).toMatch(/^#key=[\w-]{43}$/)
    const named = { ...link, room: 'ab'.repeat(16) }
    expect(parseFragment(formatFragment(named))).toEqual(named)
    expect(newRoomLink()).not.toEqual(link)
  })

  it('a fragment without a room is null; a truncated or garbled one is an error', () => {
    expect(parseFragment('')).toBeNull()
    expect(parseFragment('#debug=1')).toBeNull()
    const whole = formatFragment(newRoomLink())
    const room = `#room=${'a'.repeat(32)}`
    for (const bad of [
      whole.slice(0, -1),
      `${room}`,
      `#room=ab&${whole.slice(1)}`,
      `${room}&key=!`,
      '#key=abc',
      '#room=abc',
    ]) {
      expect(() => parseFragment(bad)).toThrow(/Copy the whole link/)
    }
  })
})

describe('keys', () => {
  it('equal links give equal keys, others do not; the key does not show the secret', async () => {
    const link = newRoomLink()
    const [a, b] = await Promise.all([RoomSecret.derive(link), RoomSecret.derive(link)])
    expect(a.authKey).toBe(b.authKey)
    expect(a.authKey).toMatch(/^[0-9a-f]{64}$/)
    expect(a.authKey).not.toBe(Buffer.from(link.key, 'base64url').toString('hex'))
    const elsewhere = await RoomSecret.derive(newRoomLink())
    expect(elsewhere.authKey).not.toBe(a.authKey)
    expect(elsewhere.room).not.toBe(a.room)
  })

  it('the room is that of the key; a link that names another was changed', async () => {
    const link = newRoomLink()
    const { room, authKey } = await RoomSecret.derive(link)
    expect(await RoomSecret.derive({ ...link, room })).toMatchObject({ room, authKey })
    const changed = { ...link, room: (await RoomSecret.derive(newRoomLink())).room }
    await expect(RoomSecret.derive(changed)).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(/^room link: .* The link was changed/),
    })
  })

  it('prove gives the HMAC that Node computes', async () => {
    const link = newRoomLink()
    const secret = await RoomSecret.derive(link)
    const nonce = '5a'.repeat(16)
    const expected = createHmac('sha256', Buffer.from(secret.authKey, 'hex'))
      .update(proofText(secret.room, nonce))
      .digest('hex')
    expect(await secret.prove(nonce)).toBe(expected)
  })

  it('servers and tabs derive the same room, which is that of a known answer', async () => {
    const { room, authKey } = await RoomSecret.derive({ key: 'A'.repeat(43) })
    // As Python's hmac and hashlib give it: HKDF of 32 zero bytes, and SHA-256 of that.
    expect(authKey).toBe('22d85764969d7b159a4ebeb804f7f604c0ca9a84d0acfe714cd3c4b4e0c3a955')
    expect(room).toBe('a67beab182e1e34b9066c3c2878dd228')
    expect([roomOf(Buffer.alloc(32)), roomOfAuthKey(authKey)]).toEqual([room, room])
  })
})

describe('boxes', () => {
  it('open at their address only', async () => {
    const link = newRoomLink()
    const sender = await RoomSecret.derive(link)
    const receiver = await RoomSecret.derive(link)
    const value = [{ type: 'offer', sdp: 'v=0 é € 🙂' }]
    const box = await sender.seal(address, value)
    expect(box).toMatch(/^[\w-]+$/)
    expect(await receiver.open(address, box)).toEqual(value)
    for (const field of ['epoch', 'from', 'to', 'attempt'] as const) {
      const wrong = { ...address, [field]: address[field] + 1 }
      await expect(receiver.open(wrong, box)).rejects.toMatchObject({ code: 'peer.protocol' })
    }
    // sent back to its sender by the server
    await expect(sender.open({ ...address, from: 2, to: 1 }, box)).rejects.toThrow(
      /does not decrypt/,
    )
  })

  it('between members open at their address only, and not at that of an epoch', async () => {
    const secret = await RoomSecret.derive(newRoomLink())
    const [from, to] = ['a'.repeat(16), 'b'.repeat(16)]
    const box = await secret.seal({ from, to }, { call: 1 })
    expect(await secret.open({ from, to }, box)).toEqual({ call: 1 })
    for (const wrong of [{ from: to, to: from }, { from, to: 'c'.repeat(16) }, address])
      await expect(secret.open(wrong, box)).rejects.toMatchObject({ code: 'peer.protocol' })
  })

  it('no other room opens them, and two of equal content differ', async () => {
    const link = newRoomLink()
    const secret = await RoomSecret.derive(link)
    const box = await secret.seal(address, 'x')
    expect(await secret.seal(address, 'x')).not.toBe(box)
    const stranger = await RoomSecret.derive(newRoomLink())
    await expect(stranger.open(address, box)).rejects.toThrow(/tampering/)
  })

  it('any changed, cut or invented box is refused', async () => {
    const secret = await RoomSecret.derive(newRoomLink())
    const box = await secret.seal(address, { a: 1 })
    for (let i = 0; i < box.length - 1; i++) {
      const changed = box.slice(0, i) + (box[i] === 'A' ? 'B' : 'A') + box.slice(i + 1)
      await expect(secret.open(address, changed)).rejects.toMatchObject({ code: 'peer.protocol' })
    }
    for (const bad of ['', 'A', 'AAAA', box.slice(0, 20), box.slice(0, -4), '!!!!', '€']) {
      await expect(secret.open(address, bad)).rejects.toMatchObject({ code: 'peer.protocol' })
    }
  })
})
