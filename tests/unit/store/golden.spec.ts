import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { newRoomUrl } from '../../../src/peer/room-url.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PrefixStore } from '../../../src/peer/store/prefix-store.ts'
import type { Store } from '../../../src/peer/store/store.ts'
import golden from '../../golden/store.json' with { type: 'json' }
import { StoreServer } from '../../support/store-server.ts'

/** Every store gives what PyTorch's HashStore gives. */

interface Step {
  op: string
  args: (string | number | string[])[]
  result?: string | number | boolean | null
  error?: string
  meanwhile?: Step[]
}

const bytes = (hex: unknown) => new Uint8Array(Buffer.from(hex as string, 'hex'))
const hex = (value: Uint8Array) => Buffer.from(value).toString('hex')

async function call(store: Store, { op, args }: Step): Promise<Step['result'] | undefined> {
  const [key, a, b] = args
  if (op === 'wait') return store.wait(key as string[]).then(() => null)
  const name = key as string
  if (op === 'set') return store.set(name, bytes(a)).then(() => null)
  if (op === 'get') return hex(await store.get(name))
  if (op === 'add') return store.add(name, a as number)
  if (op === 'compareSet') return hex(await store.compareSet(name, bytes(a), bytes(b)))
  if (op === 'deleteKey') return store.deleteKey(name)
  if (op === 'numKeys') return store.numKeys()
  throw new Error(`no ${op}`)
}

let server: StoreServer
beforeAll(async () => {
  server = await StoreServer.start()
})
afterEach(() => server.closeStores())
afterAll(() => server.close())

const stores: [string, () => Promise<Store>][] = [
  ['HashStore', async () => new HashStore()],
  ['PrefixStore of a HashStore', async () => new PrefixStore('a/b', new HashStore())],
  ['WebSocketStore', () => server.open(newRoomUrl(server.address))],
  [
    'PrefixStore of a WebSocketStore',
    async () => new PrefixStore('', await server.open(newRoomUrl(server.address))),
  ],
]

describe.each(stores)('%s', (_, open) => {
  it.each(golden.cases.map((one) => [one.name, one.steps as Step[]] as const))(
    '%s',
    async (_, steps) => {
      const store = await open()
      for (const step of steps) {
        store.timeoutMs = step.meanwhile ? 20_000 : 50
        const outcome = call(store, step).then(
          (result) => ({ result }),
          (error) => ({ error: error.code }),
        )
        for (const other of step.meanwhile ?? []) await call(store, other)
        const isLate = step.error?.includes('timeout')
        expect(await outcome, `${step.op} ${step.args}`).toEqual(
          step.error
            ? { error: isLate ? 'peer.timeout' : 'config.invalid' }
            : { result: step.result },
        )
      }
    },
  )
})
