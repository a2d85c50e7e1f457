import { afterEach, describe, expect, it } from 'vitest'
import { OpfsStore } from '../../src/peer/store/opfs-store.ts'
import { expectStoreCase, storeCases } from '../support/store-golden.ts'

/** The store in a file of the origin gives what PyTorch's give, and what crashes leave in it is no matter. */

const opened: OpfsStore[] = []
async function open(room: string): Promise<OpfsStore> {
  const store = await OpfsStore.open(room)
  opened.push(store)
  return store
}
afterEach(() => {
  for (const store of opened.splice(0)) store.close()
})

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

// `get`, which reads the file, times out at its deadline and not before: 50 ms are enough for a file here.
it.each(storeCases)('%s', async (name, steps) => {
  await expectStoreCase(await open(name.replace(/[^\w.-]+/g, '-')), steps)
})

describe('several stores of one room', () => {
  it("see each other's values, and 50 adds of each count to 100", async () => {
    const [a, b] = [await open('two'), await open('two')]
    const waiting = b.get('k')
    await a.set('k', 'v')
    expect(text(await waiting)).toBe('v')
    const sums = await Promise.all(
      Array.from({ length: 100 }, (_, i) => (i % 2 ? a : b).add('n', 1)),
    )
    expect(sums.sort((x, y) => x - y)).toEqual(Array.from({ length: 100 }, (_, i) => i + 1))
  })

  it('keep the values until the last has closed; the next begins empty', async () => {
    const a = await open('room')
    await a.set('k', 'v')
    const b = await open('room')
    a.close()
    expect(text(await b.get('k'))).toBe('v')
    b.close()
    expect(await (await open('room')).numKeys()).toBe(0)
  })

  it('an incomplete file opens as an empty store when nobody has the room open', async () => {
    const folder = await navigator.storage.getDirectory()
    const file = await folder.getFileHandle('tabring-store-cut.json', { create: true })
    const writing = await file.createWritable()
    await writing.write('[["k","')
    await writing.close()
    expect(await (await open('cut')).numKeys()).toBe(0)
  })

  it('close rejects pending and later calls', async () => {
    const store = await open('end')
    const waiting = expect(store.get('k')).rejects.toMatchObject({ code: 'peer.lost' })
    store.close()
    await waiting
    await expect(store.set('k', 'v')).rejects.toMatchObject({ code: 'peer.lost' })
  })

  it('a room needs a name', async () => {
    await expect(OpfsStore.open('a/b')).rejects.toThrow(/expected a room name of 1 to 100 letters/)
  })
})
