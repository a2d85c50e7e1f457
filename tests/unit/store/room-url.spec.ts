import { describe, expect, it } from 'vitest'
import { newRoomUrl, parseRoomUrl } from '../../../src/peer/room/room-url.ts'
import { formatFragment, newRoomLink } from '../../../src/peer/room/secret.ts'
import { openStore } from '../../../src/peer/tab/open-store.ts'

const link = newRoomLink()
const fragment = formatFragment(link)

describe('links to rooms', () => {
  it.each([
    ['wss://host/', 'wss://host/signal'],
    ['ws://localhost:5173', 'ws://localhost:5173/signal'],
    ['wss://host/behind/a/proxy', 'wss://host/behind/a/proxy'],
    ['wss://[::1]:8443/signal', 'wss://[::1]:8443/signal'],
    ['https://host:8443/index.html?model=cnn', 'wss://host:8443/signal'],
    ['http://127.0.0.1:5173/', 'ws://127.0.0.1:5173/signal'],
  ])('%s leads to %s', (address, server) => {
    expect(parseRoomUrl('test', address + fragment)).toEqual({ server, link })
    expect(parseRoomUrl('test', new URL(address + fragment))).toEqual({ server, link })
    expect(parseRoomUrl('test', newRoomUrl(address)).server).toBe(server)
  })

  it('each new link is of another room', () => {
    const [a, b] = [newRoomUrl('ws://host'), newRoomUrl('ws://host')]
    expect(a).toMatch(/^ws:\/\/host\/signal#key=[\w-]{43}$/)
    expect(parseRoomUrl('test', a).link).not.toEqual(parseRoomUrl('test', b).link)
  })

  it.each([
    ['no address', `host/${fragment}`, /must be an address/],
    ['nothing', '', /must be an address/],
    ['another protocol', `ftp://host/${fragment}`, /must be an address .* got ftp:/],
    ['no room', 'wss://host/', /has no #key=/],
    ['a room without its key', `wss://host/#room=${'a'.repeat(32)}`, /must hold #key=/],
    ['a cut key', `wss://host/${fragment.slice(0, -1)}`, /must hold #key=/],
  ])('%s is refused, without the secret in the text', async (_, url, text) => {
    const error = await openStore(url).catch((thrown) => thrown)
    expect(error).toMatchObject({ code: 'config.invalid' })
    expect(error.message).toMatch(text)
    expect(error.message).not.toContain(link.key.slice(0, 20))
  })

  it('openStore checks its options before it connects', async () => {
    const url = newRoomUrl('ws://127.0.0.1:9')
    await expect(openStore(url, { timeout: 1 } as never)).rejects.toThrow(/"timeout"/)
    await expect(openStore(url, { mode: 'make' as never })).rejects.toThrow(/mode must be one of/)
    await expect(openStore(url, { timeoutMs: -1 })).rejects.toThrow(/openStore: timeoutMs must be/)
  })
})
