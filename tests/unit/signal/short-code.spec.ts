import { beforeEach, describe, expect, it } from 'vitest'
import { formatCode, parseCode, type ShortCode } from '../../../src/peer/room/code-messages.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { GivenCode, keyOfCode, type ShownCode } from '../../../src/peer/tab/code-exchange.ts'
import { SignalWorld } from '../../support/signal-world.ts'

describe('a code', () => {
  it('is read with spaces, small letters and hyphens', () => {
    const code = { name: 'K7', password: '4PXM' }
    expect(formatCode(code)).toBe('K74 PXM')
    expect(parseCode(' k74-pxm ')).toEqual(code)
    expect(parseCode('K7Z4PXM')).toEqual({ name: 'K7Z', password: '4PXM' })
  })

  it.each(['', 'K74PX', 'K74 PX1', 'K74 PXO', 'K7Z4QP4PXM'])('is not %j', (text) => {
    expect(parseCode(text)).toBeNull()
  })
})

describe('a tab that shows a code', () => {
  let world: SignalWorld
  const link = newRoomLink()
  let shown: ShownCode[]
  let sockets: string[]
  beforeEach(() => {
    world = new SignalWorld()
    shown = []
    sockets = []
  })

  const options = () => ({
    url: 'ws://test/signal',
    env: world.env,
    WebSocket: world.socketClass((id) => sockets.push(id)),
  })
  const last = () => shown.at(-1)!
  const isOpen = () => last()?.is === 'open'
  const codeNow = (): ShortCode => {
    const now = last()
    if (now.is !== 'open') throw new Error(`the code is ${now.is}`)
    return now.code
  }
  const open = async () => {
    const { client } = world.client(link)
    await world.settled(client.open())
    const given = new GivenCode({ ...options(), link }, (code) => shown.push(code))
    await world.until(isOpen)
    return { client, given }
  }
  const use = (code: ShortCode) => world.settled(keyOfCode(options(), code))
  const wrong = ({ name, password }: ShortCode): ShortCode => ({
    name,
    password: password === '2222' ? '3333' : '2222',
  })

  it('gives the key to who knows it, and the server sees neither', async () => {
    const seen: string[] = []
    world.tamper = (text) => {
      seen.push(text)
      return text
    }
    await open()
    const code = codeNow()
    expect(formatCode(code)).toMatch(/^... ...$/)
    const keys = await Promise.all([use(code), use(code), use(code)])
    expect(keys).toEqual([link.key, link.key, link.key])
    expect(seen.join()).toContain(`"name":"${code.name}"`)
    expect(seen.join()).not.toContain(code.password)
    expect(seen.join()).not.toContain(link.key)
  })

  it('gives nothing for another password or name', async () => {
    await open()
    const code = codeNow()
    await expect(use(wrong(code))).rejects.toMatchObject({ refusal: 'wrong-code' })
    const name = code.name === 'AA' ? 'BB' : 'AA'
    await expect(use({ ...code, name })).rejects.toMatchObject({ refusal: 'wrong-code' })
    expect(await use(code)).toBe(link.key)
  })

  it('closes the code after 20 wrong ones', async () => {
    await open()
    const code = codeNow()
    for (let i = 0; i < 20; i++) await expect(use(wrong(code))).rejects.toThrow('nobody shows')
    expect(last()).toMatchObject({ is: 'closed', why: expect.stringContaining('20 wrong codes') })
    await expect(use(code)).rejects.toMatchObject({ refusal: 'wrong-code' })
  })

  it('keeps its code where the server comes back', async () => {
    const { client } = await open()
    const code = codeNow()
    client.bye()
    world.kill()
    world.restart()
    const back = world.client(link)
    await world.settled(back.client.open())
    await world.until(() => shown.length > 2 && isOpen())
    expect(codeNow()).toEqual(code)
    expect(await use(code)).toBe(link.key)
  })

  it('keeps its code where its network changes, before the server has noticed', async () => {
    await open()
    const code = codeNow()
    const server = world.server!
    const { lost } = server
    server.lost = () => undefined
    world.sockets.get(sockets[0])!.end(1006, '')
    await world.until(() => last().is === 'waiting')
    await world.until(isOpen)
    server.lost = lost
    expect(codeNow()).toEqual(code)
    expect(await use(code)).toBe(link.key)
  })

  it('closes its code once it is in another room', async () => {
    let isCurrent = true
    const { client } = world.client(link)
    await world.settled(client.open())
    new GivenCode({ ...options(), link, isCurrent: () => isCurrent }, (code) => shown.push(code))
    await world.until(isOpen)
    const code = codeNow()
    isCurrent = false
    await expect(use(code)).rejects.toMatchObject({ refusal: 'wrong-code' })
    expect(last()).toMatchObject({ is: 'closed' })
  })

  it('ends its code when it is closed, and when its room ends', async () => {
    const { client, given } = await open()
    const code = codeNow()
    given.close()
    await world.until(() => false, 100)
    await expect(use(code)).rejects.toMatchObject({ refusal: 'wrong-code' })
    const again = new GivenCode({ ...options(), link }, (one) => shown.push(one))
    await world.until(isOpen)
    client.bye()
    await world.until(() => last().is === 'waiting')
    await expect(use(code)).rejects.toMatchObject({ refusal: 'wrong-code' })
    again.close()
  })

  /** With another first character. */
  const changed = (box: string) => (box.startsWith('A') ? 'B' : 'A') + box.slice(1)

  it('is noticed where the server changes an answer', async () => {
    await open()
    world.tamper = (text) => {
      const message = text && JSON.parse(text)
      const isKey = message.type === 'codeAnswer' && message.box.length > 50
      return isKey ? JSON.stringify({ ...message, box: changed(message.box) }) : text
    }
    const failed = use(codeNow())
    await expect(failed).rejects.toThrow('does not come from the tab that shows the code')
  })
})
