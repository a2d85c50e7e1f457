import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { expect, it } from 'vitest'
import { attachSignaling } from '../../../node/signal-server.ts'
import type { RunNow } from '../../../src/peer/room/client-messages.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { SignalClient } from '../../../src/peer/tab/signal.ts'
import type { PeerError } from '../../../src/util/errors.ts'
import { infoOf } from '../../support/member-info.ts'
import { socketFrom } from '../../support/signal-socket.ts'
import { SignalWorld } from '../../support/signal-world.ts'

/** Clients that connect again when their connection ends. */

const settings = { steps: 3 }
const names = ['a', 'b', 'c']
const tokenOf = (name: string) => name.codePointAt(0)!.toString(16).repeat(16)

type Tab = ReturnType<SignalWorld['client']>

const ranksOf = ({ client }: Tab): (string | undefined)[] => {
  const ranks = client.lobby?.members.filter(({ rank }) => rank !== null) ?? []
  return ranks.sort((x, y) => x.rank! - y.rank!).map(({ name }) => name)
}

/** Three members of an elastic run that has begun. */
async function begun(world = new SignalWorld()) {
  const link = newRoomLink()
  let run: RunNow | null = null
  const enter = async (name: string) => {
    const options = { reconnects: true, hostToken: tokenOf(name), runNow: () => run }
    const tab = world.client(link, name, options)
    await world.settled(tab.client.open())
    return tab
  }
  const tabs: Tab[] = []
  for (const name of names) tabs.push(await enter(name))
  await world.until(() => tabs[0].client.lobby?.members.length === 3)
  tabs[0].client.start(settings, true)
  await world.until(() => tabs.every(({ has }) => has('assign').length === 1))
  for (const { client } of tabs) client.ready(1)
  await world.until(() => tabs.every(({ has }) => has('start').length === 1))
  const ids = tabs.map(({ client }) => client.id)
  const { key } = tabs[0].has('assign')[0].value as { key: string }
  run = { key, run: 1, ballot: 3, ids, settings }
  return { world, tabs, ids, key, link, enter }
}

it('a server that ends and is replaced knows the run again within 10 s, and links a newcomer', async () => {
  const { world, tabs, ids, enter } = await begun()
  world.kill()
  await world.env.advance(20_000)
  for (const { has } of tabs) {
    expect(has('away')).toHaveLength(1)
    expect(String(has('away')[0].value)).toContain('It is tried again.')
    expect(has('back')).toHaveLength(0)
  }
  tabs[1].client.update(infoOf('renamed'))
  world.restart()
  const tookMs = await world.until(() => tabs.every((tab) => ranksOf(tab).length === 3))
  expect(tookMs).toBeLessThan(10_000)
  for (const tab of tabs) {
    expect(tab.has('back').map(({ value }) => value)).toEqual([{ isSame: true }])
    expect(tab.client.lobby?.state).toBe('running')
    expect(ranksOf(tab)).toEqual(['a', 'renamed', 'c'])
    expect(tab.has('lost')).toEqual([])
  }
  expect(tabs.map(({ client }) => client.id)).toEqual(ids)
  const late = await enter('d')
  await world.until(() => late.has('assign').length === 1)
  expect(late.has('assign')[0].value).toMatchObject({ epoch: 2, run: 1, rank: 3, joining: 1 })
  for (const { client } of [...tabs, late]) client.ready(2)
  await world.until(() => late.has('start').length === 1)
  expect(late.has('start')[0].value).toMatchObject({ epoch: 2, settings })
  await world.until(() => ranksOf(late).length === 4)
  expect(ranksOf(tabs[0])).toEqual(['a', 'renamed', 'c', 'd'])
})

it('a member has its id and rank again when its connection comes back, and its messages count', async () => {
  const { world, tabs, ids, key } = await begun()
  tabs[1].cut()
  await world.until(() => ranksOf(tabs[0]).length === 2)
  expect(tabs[0].has('gone')[0].value).toMatchObject({ rank: 1, hasLeft: false })
  await world.until(() => ranksOf(tabs[0]).length === 3)
  expect(ranksOf(tabs[0])).toEqual(names)
  expect(tabs[1].client.id).toBe(ids[1])
  tabs[1].client.ranks(key, 4, [ids[1], ids[0]])
  await world.until(() => ranksOf(tabs[0]).length === 2)
  expect(ranksOf(tabs[0])).toEqual(['b', 'a'])
  tabs[2].client.out(key)
  await world.until(() => tabs[2].has('assign').length === 2)
  expect(tabs[2].has('assign')[1].value).toMatchObject({ epoch: 2, rank: 2, joining: 1 })
})

it('waits longer from try to try, up to 8 s, and starts with 0.25 s again once it was back', async () => {
  const { world, tabs } = await begun()
  world.kill()
  await world.env.advance(1)
  const tries = tabs.map(({ socketIds }) => socketIds.length)
  await world.env.advance(120_000)
  for (const [at, { socketIds }] of tabs.entries()) {
    const count = socketIds.length - tries[at]
    // 8 s of waits from 0.25 to 4 s, then 4 to 8 s each; half of all that at the least.
    expect(count).toBeGreaterThanOrEqual(18)
    expect(count).toBeLessThanOrEqual(35)
  }
  world.restart()
  await world.until(() => tabs.every(({ has }) => has('back').length === 1))
  tabs[0].cut()
  // Long waits are 4 s at least.
  expect(await world.until(() => tabs[0].has('back').length === 2)).toBeLessThan(1000)
})

it('a server that falls silent counts as ended, and one that is stopped too', async () => {
  const { world, tabs } = await begun()
  world.tamper = () => undefined
  await world.until(() => tabs.every(({ has }) => has('away').length === 1))
  world.tamper = (text) => text
  await world.until(() => tabs.every(({ has }) => has('back').length === 1))
  const { server } = world
  world.server = null
  server!.shutDown()
  await world.until(() => tabs.every(({ has }) => has('away').length === 2))
  expect(tabs[0].has('away')[1].value).toMatchObject({ refusal: 'shutting-down' })
  world.restart()
  await world.until(() => tabs.every((tab) => ranksOf(tab).length === 3))
  expect(tabs[0].has('lost')).toEqual([])
})

it('a refusal ends reconnecting, from inside the room and on the way back', async () => {
  const { world, tabs, ids } = await begun()
  tabs[0].client.remove(ids[1])
  await world.until(() => tabs[1].has('lost').length === 1)
  expect(tabs[1].has('lost')[0].value).toMatchObject({ refusal: 'removed' })
  expect(tabs[1].has('away')).toEqual([])
  world.tamper = (text) => text.replace('"type":"welcome"', '"type":"new"')
  tabs[2].cut()
  await world.until(() => tabs[2].has('lost').length === 1)
  expect(String(tabs[2].has('lost')[0].value)).toContain('Reload the page.')
  const tries = tabs.map(({ socketIds }) => socketIds.length)
  await world.env.advance(60_000)
  expect(tabs.map(({ socketIds }) => socketIds.length)).toEqual(tries)
})

it('bye while it is away ends reconnecting', async () => {
  const { world, tabs } = await begun()
  tabs[0].cut()
  await world.until(() => tabs[0].has('away').length === 1)
  tabs[0].client.bye()
  const tries = tabs[0].socketIds.length
  await world.env.advance(60_000)
  expect(tabs[0].socketIds).toHaveLength(tries)
  expect(ranksOf(tabs[1])).toEqual(['b', 'c'])
})

it('a lone member makes its room again, and gets the reason of each time away', async () => {
  const world = new SignalWorld()
  const { client, has } = world.client(newRoomLink(), 'a', { reconnects: true })
  await world.settled(client.open())
  const { id } = client
  const { server } = world
  world.server = null
  server!.shutDown()
  await world.until(() => has('away').length === 1)
  world.restart()
  await world.until(() => has('back').length === 1)
  world.kill()
  await world.until(() => has('away').length === 2)
  world.restart()
  expect(await world.until(() => has('back').length === 2)).toBeLessThan(1000)
  expect(client.id).toBe(id)
  expect(has('away').map(({ value }) => (value as PeerError).code)).toEqual([
    'signal.refused',
    'signal.lost',
  ])
})

it('a member without reconnection gets the error that its connection was lost', async () => {
  const world = new SignalWorld()
  const tab = world.client()
  await world.settled(tab.client.open())
  tab.cut()
  await world.env.advance(60_000)
  expect(tab.has('lost')).toHaveLength(1)
  expect(tab.socketIds).toHaveLength(1)
})

it('on real sockets: a server that is killed and starts again on its port', async () => {
  const start = async (port: number) => {
    const server = createServer()
    const signaling = attachSignaling(server)
    const sockets: Socket[] = []
    server.on('connection', (socket) => void sockets.push(socket))
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    return { server, signaling, sockets, port: (server.address() as AddressInfo).port }
  }
  const first = await start(0)
  const { port } = first
  const link = newRoomLink()
  let run: RunNow | null = null
  const tabs = names.map(
    (name) =>
      new SignalClient({
        url: `ws://127.0.0.1:${port}/signal`,
        link,
        info: infoOf(name),
        reconnects: true,
        runNow: () => run,
        WebSocket: socketFrom(`http://127.0.0.1:${port}`),
      }),
  )
  const away: string[] = []
  const lost: string[] = []
  let key = ''
  for (const tab of tabs) {
    tab.on('assign', (assignment) => {
      key = assignment.key!
      tab.ready(assignment.epoch)
    })
    tab.on('away', (error) => void away.push(error.message))
    tab.on('lost', (error) => void lost.push(error.message))
    await tab.open()
  }
  await expect.poll(() => tabs[0].lobby?.members.length).toBe(3)
  tabs[0].start(settings, true)
  await expect.poll(() => tabs[2].lobby?.state).toBe('running')
  const ids = tabs.map(({ id }) => id)
  run = { key, run: 1, ballot: 1, ids, settings }

  // Without a word to its clients, as a process that is killed.
  first.server.close()
  for (const socket of first.sockets) socket.destroy()
  await expect.poll(() => away.length).toBe(3)
  const second = await start(port)
  const ranks = () => tabs.map(({ lobby }) => lobby?.members.map(({ id, rank }) => [id, rank]))
  await expect
    .poll(() => ranks().map((all) => all?.filter(([, rank]) => rank !== null).length), {
      timeout: 10_000,
    })
    .toEqual([3, 3, 3])
  for (const all of ranks())
    expect(all).toEqual(expect.arrayContaining(ids.map((id, rank) => [id, rank])))
  expect(tabs.map(({ id }) => id)).toEqual(ids)
  expect(lost).toEqual([])
  for (const tab of tabs) tab.bye()
  await second.signaling.close()
  second.server.close()
})
