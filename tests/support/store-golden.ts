import { expect } from 'vitest'
import type { Store } from '../../src/peer/store/store.ts'
import { toHex } from '../../src/util/env.ts'
import golden from '../golden/store.json' with { type: 'json' }

interface Step {
  op: string
  args: (string | number | string[])[]
  result?: string | number | boolean | null
  error?: string
  meanwhile?: Step[]
}

/** What PyTorch's HashStore gives, case by case. */
export const storeCases = golden.cases.map((one) => [one.name, one.steps as Step[]] as const)

const bytes = (hex: unknown) =>
  Uint8Array.from((hex as string).match(/../g) ?? [], (byte) => Number.parseInt(byte, 16))

async function call(store: Store, { op, args }: Step): Promise<Step['result'] | undefined> {
  const [key, a, b] = args
  if (op === 'wait') return store.wait(key as string[]).then(() => null)
  const name = key as string
  if (op === 'set') return store.set(name, bytes(a)).then(() => null)
  if (op === 'get') return toHex(await store.get(name))
  if (op === 'add') return store.add(name, a as number)
  if (op === 'compareSet') return toHex(await store.compareSet(name, bytes(a), bytes(b)))
  if (op === 'deleteKey') return store.deleteKey(name)
  if (op === 'numKeys') return store.numKeys()
  throw new Error(`no ${op}`)
}

/** Expects of a store that is empty what PyTorch's gave. */
export async function expectStoreCase(store: Store, steps: readonly Step[]): Promise<void> {
  for (const step of steps) {
    store.timeoutMs = step.meanwhile ? 20_000 : 50
    const outcome = call(store, step).then(
      (result) => ({ result }),
      (error) => ({ error: error.code }),
    )
    for (const other of step.meanwhile ?? []) await call(store, other)
    const isLate = step.error?.includes('timeout')
    expect(await outcome, `${step.op} ${step.args}`).toEqual(
      step.error ? { error: isLate ? 'peer.timeout' : 'config.invalid' } : { result: step.result },
    )
  }
}
