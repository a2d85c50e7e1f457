import { expect, it } from 'vitest'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PortStore, serveStore } from '../../../src/peer/store/port-store.ts'
import type { Store } from '../../../src/peer/store/store.ts'
import { PeerError, TabringError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

/** A store, and two contexts that have it open. */
function shared() {
  const store = new HashStore()
  let byes = 0
  const users = [0, 1].map(() => {
    const { port1, port2 } = new MessageChannel()
    serveStore(store, port1, () => {
      byes += 1
    })
    return new PortStore(port2)
  })
  return { store, users, byes: () => byes }
}

it('PortStores share their values, each with its own time-out', async () => {
  const { users } = shared()
  const [a, b] = users
  a.timeoutMs = 20
  const late = expect(a.get('k')).rejects.toMatchObject({ code: 'peer.timeout' })
  const waiting = b.get('k')
  await late
  await a.set('k', 'v')
  expect(new TextDecoder().decode(await waiting)).toBe('v')
  for (const user of users) user.close()
})

it('a PortStore rejects pending and later calls when it is closed, and the other continues', async () => {
  const { users, byes } = shared()
  const [a, b] = users
  const pending = expect(a.get('k')).rejects.toMatchObject({ code: 'peer.lost' })
  a.close()
  await pending
  await expect(a.numKeys()).rejects.toMatchObject({ code: 'peer.lost' })
  await b.set('k', 'v')
  expect(byes()).toBe(1)
  b.close()
  await expect.poll(byes).toBe(2)
})

it('errors keep code and text', async () => {
  const { users } = shared()
  await users[0].set('k', 'no number')
  await expect(users[0].add('k', 1)).rejects.toMatchObject({
    code: 'config.invalid',
    message: expect.stringMatching(/store.add\("k"\): expected a value that begins/),
  })
  for (const user of users) user.close()
})

it('wrong arguments are the errors of a store in this thread', async () => {
  const { store, users } = shared()
  const [user] = users
  const calls: ((of: Store) => Promise<unknown>)[] = [
    (of) => of.set(5 as never, 'x'),
    (of) => of.set('k', (() => 1) as never),
    (of) => of.get(undefined as never),
    (of) => of.wait('k' as never, 50),
    (of) => of.wait(['k'], -1),
    (of) => of.add('k', 0.5),
    (of) => of.compareSet('k', 1 as never, ''),
    (of) => of.deleteKey({} as never),
  ]
  for (const call of calls) {
    const [there, here] = await Promise.all(
      [store, user].map((of) =>
        call(of).then(
          () => undefined,
          (thrown: Error) => thrown,
        ),
      ),
    )
    expect(here).toBeInstanceOf(TabringError)
    expect([here?.constructor, here?.message]).toEqual([there?.constructor, there?.message])
  }
  await store.set('k', 'no number')
  await expect(user.add('k', 1)).rejects.not.toBeInstanceOf(PeerError)
  for (const one of users) one.close()
})

it('waits end when their user or the store ends', async () => {
  const env = new VirtualEnv(1)
  const store = new HashStore({ env, timeoutMs: 0 })
  const [a, b] = [store.share(), store.share()]
  const waits = [a.get('k'), b.get('k'), b.wait(['other'])].map((wait) =>
    wait.then(
      () => 'there',
      (thrown: PeerError) => thrown.code,
    ),
  )
  a.close()
  expect(await waits[0]).toBe('peer.lost')
  await expect(a.numKeys()).rejects.toMatchObject({ code: 'peer.lost' })
  await store.set('k', 'v')
  expect(await waits[1]).toBe('there')
  store.close()
  expect(await waits[2]).toBe('peer.lost')
  await expect(b.numKeys()).rejects.toMatchObject({ code: 'peer.lost' })
})

it('a user that goes leaves no wait in the store', async () => {
  const { store, users, byes } = shared()
  const table = (store as unknown as { table: { waiters: Map<string, unknown> } }).table
  users[0].timeoutMs = 0
  const pending = expect(users[0].get('never')).rejects.toMatchObject({ code: 'peer.lost' })
  await expect.poll(() => table.waiters.size).toBe(1)
  users[0].close()
  await pending
  await expect.poll(byes).toBe(1)
  expect(table.waiters.size).toBe(0)
  users[1].close()
})
