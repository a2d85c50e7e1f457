import { afterEach, expect, test, vi } from 'vitest'
import { joinedName } from '../../../src/distributed/launcher/joined.ts'
import { destroyProcessGroup, initProcessGroup } from '../../../src/entries/distributed.ts'

afterEach(async () => {
  vi.unstubAllGlobals()
  await destroyProcessGroup()
})

test('the opener of a tab learns that its rank has joined, and not before', async () => {
  const take = vi.fn()
  vi.stubGlobal(joinedName, take)
  await expect(initProcessGroup({ links: new Map(), rank: 2, worldSize: 2 })).rejects.toThrow()
  expect(take).not.toHaveBeenCalled()
  await initProcessGroup({ links: new Map(), rank: 0, worldSize: 1 })
  expect(take.mock.calls).toEqual([['{"rank":0,"worldSize":1}']])
})

test('a worker sends it to its page over the channel', async () => {
  vi.stubGlobal('WorkerGlobalScope', class {})
  const page = new BroadcastChannel(joinedName)
  const heard = new Promise((resolve) => {
    page.onmessage = ({ data }) => resolve(data)
  })
  await initProcessGroup({ links: new Map(), rank: 0, worldSize: 1 })
  expect(await heard).toBe('{"rank":0,"worldSize":1}')
  page.close()
})

test('without options the ranks come from the environment', async () => {
  await expect(initProcessGroup()).rejects.toThrow('env: MASTER_ADDR is not set.')
})
