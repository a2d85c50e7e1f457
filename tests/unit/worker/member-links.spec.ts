import { expect, test, vi } from 'vitest'
import type { Assignment } from '../../../src/peer/room/messages.ts'
import type { LocalPorts } from '../../../src/peer/tab/local-ports.ts'
import type { SignalClient } from '../../../src/peer/tab/signal.ts'
import type { ComputeApi } from '../../../src/worker/api.ts'
import { MemberLinks } from '../../../src/worker/page/member-links.ts'

// Links that members make themselves, from the page's side. tests/all/e2e/class.spec.ts has them in real tabs.

const memberAt = (rank: number, hostTag: string) => ({
  id: `${rank}`.padStart(16, '0'),
  name: `t${rank}`,
  adapter: {},
  hostTag,
  hidden: false,
  transport: 'auto' as const,
})

function linksOf(hostTags: readonly string[], pair: LocalPorts['pair']) {
  const calls: unknown[][] = []
  const note =
    (name: string) =>
    async (...args: unknown[]) =>
      void calls.push([name, ...args])
  const compute = {
    addLink: note('addLink'),
    admit: note('admit'),
    dropLinks: note('dropLinks'),
    notLinked: note('notLinked'),
    signal: note('signal'),
    memberIsDead: note('memberIsDead'),
  } as unknown as ComputeApi
  const client = { hasRelay: false, isInside: false, iceServers: [] } as unknown as SignalClient
  const links = new MemberLinks({ client, compute, ports: { pair } as unknown as LocalPorts })
  const members: Assignment['members'] = hostTags.map((tag, rank) => memberAt(rank, tag))
  const lives = members.map(({ id }) => `${id}.3`)
  const form = (ballot: number, ...peers: readonly number[]) =>
    links.form(
      {
        event: 'unlinked',
        ...{ ballot, lives, rank: 0 },
        links: peers.map((peerRank) => ({ peerRank, initiator: true })),
      },
      members,
    )
  return { links, calls, form, lives }
}

const portPair = (gone = new Promise<void>(() => undefined)) => {
  const port = { close: vi.fn() } as unknown as MessagePort
  return { port, gone, release: vi.fn() }
}

test('each link by a port is given to the worker with the life at its other end', async () => {
  const keys: string[] = []
  const { calls, form, lives } = linksOf(['a', 'a', 'a'], async (key) => {
    keys.push(key)
    return portPair()
  })
  await form(65_537, 1, 2)
  await vi.waitFor(() => expect(calls.filter(([name]) => name === 'admit')).toHaveLength(2))
  const epochs = calls.filter(([name]) => name === 'addLink').map(([, epoch]) => epoch)
  expect(new Set(epochs).size).toBe(2)
  expect(calls).toContainEqual([
    'admit',
    { epoch: epochs[0], newcomers: [{ rank: 1, id: lives[1], machine: 'a' }] },
  ])
  expect(keys[0]).toContain('65537')
})

test('the worker learns the life of a tab whose port has closed', async () => {
  const { calls, form, lives } = linksOf(['a', 'a'], async () => portPair(Promise.resolve()))
  await form(65_537, 1)
  await vi.waitFor(() => expect(calls).toContainEqual(['memberIsDead', lives[1]]))
})

test('a link that cannot be made is named to the worker', async () => {
  const { links, calls, form } = linksOf(['a', 'b', 'a'], async () => {
    throw new Error('the tab did not ask')
  })
  // Node has no WebRTC, and the other tab does not ask for its port.
  await form(65_537, 1, 2)
  await vi.waitFor(() => {
    expect(calls).toContainEqual(['notLinked', 65_537, 1])
    expect(calls).toContainEqual(['notLinked', 65_537, 2])
  })
  expect(links.links).toEqual([])
})

test('an invalid WebRTC signal breaks no other link', async () => {
  const { links, calls, form } = linksOf(['a', 'a'], async () => portPair())
  const signal = { event: 'signal', ballot: 65_537, from: 1, rank: 0, attempt: 1 } as const
  links.receive({ ...signal, data: 'a lie' })
  await form(65_537, 1)
  links.receive({ ...signal, data: 'a lie' })
  await vi.waitFor(() => expect(calls.some(([name]) => name === 'admit')).toBe(true))
})

test('links that form for an older roster are given up when a newer one lacks links, and those that are up stay', async () => {
  const late: (() => void)[] = []
  const pairs = [portPair(), portPair(), portPair()]
  let count = 0
  const { links, calls, form } = linksOf(['a', 'a', 'a'], async () => {
    const pair = pairs[count++]!
    if (count === 2) await new Promise<void>((resolve) => late.push(resolve))
    return pair
  })
  await form(65_537, 1, 2)
  await vi.waitFor(() => expect(calls.some(([name]) => name === 'admit')).toBe(true))
  await form(131_073, 2)
  for (const go of late) go()
  await vi.waitFor(() => expect(calls.filter(([name]) => name === 'admit')).toHaveLength(2))
  expect(pairs[1]!.release).toHaveBeenCalled()
  const epochs = calls.filter(([name]) => name === 'addLink').map(([, epoch]) => epoch)
  expect(calls.find(([name]) => name === 'dropLinks')).not.toContain(epochs[0])
  expect(pairs[0]!.release).not.toHaveBeenCalled()
  expect(links.links).toHaveLength(2)
})
