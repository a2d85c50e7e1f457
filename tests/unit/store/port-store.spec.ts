import { expect, it } from 'vitest'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PortStore, serveStore } from '../../../src/peer/store/port-store.ts'

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

it('what one sets the other sees, each with a time-out of its own', async () => {
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

it('what is pending when it is closed rejects, and so does what comes; the other goes on', async () => {
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
