import { afterAll, afterEach, beforeAll, describe, it } from 'vitest'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PortStore, serveStore } from '../../../src/peer/store/port-store.ts'
import { PrefixStore } from '../../../src/peer/store/prefix-store.ts'
import type { Store } from '../../../src/peer/store/store.ts'
import { expectStoreCase, storeCases } from '../../support/store-golden.ts'
import { StoreServer } from '../../support/store-server.ts'

/** Every store gives what PyTorch's HashStore gives; OpfsStore in tests/gpu/opfs-store.spec.ts. */

let server: StoreServer
beforeAll(async () => {
  server = await StoreServer.start()
})
afterEach(() => server.closeStores())
afterAll(() => server.close())

function overPort(): Store {
  const { port1, port2 } = new MessageChannel()
  serveStore(new HashStore(), port1, () => undefined)
  return new PortStore(port2)
}

const stores: [string, () => Promise<Store>][] = [
  ['HashStore', async () => new HashStore()],
  ['PrefixStore of a HashStore', async () => new PrefixStore('a/b', new HashStore())],
  ['PortStore', async () => overPort()],
  ['WebSocketStore', () => server.open(newRoomUrl(server.address))],
  [
    'PrefixStore of a WebSocketStore',
    async () => new PrefixStore('', await server.open(newRoomUrl(server.address))),
  ],
]

describe.each(stores)('%s', (_, open) => {
  it.each(storeCases)('%s', async (_, steps) => {
    const store = await open()
    await expectStoreCase(store, steps)
    store.close()
  })
})
