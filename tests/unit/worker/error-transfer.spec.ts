import * as Comlink from 'comlink'
import { expect, test } from 'vitest'
import {
  type EndFacts,
  endFactsOf,
  PeerError,
  RunError,
  TabringError,
} from '../../../src/util/errors.ts'
import { keepErrorCodes } from '../../../src/worker/error-transfer.ts'

keepErrorCodes()

async function thrownAcross(thrown: unknown): Promise<unknown> {
  const { port1, port2 } = new MessageChannel()
  try {
    Comlink.expose({ act: () => Promise.reject(thrown) }, port1)
    return await Comlink.wrap<{ act(): Promise<void> }>(port2)
      .act()
      .catch((error) => error)
  } finally {
    port1.close()
    port2.close()
  }
}

test.each<[string, Error, EndFacts]>([
  [
    'its own fields',
    new RunError('peer.lost', 'lost.', { ranks: [2], leftOut: 'again' }),
    { ranks: [2], leftOut: 'again' },
  ],
  [
    'those of its cause',
    new PeerError('peer.lost', 'barrier #1: lost.', {
      cause: new RunError('peer.lost', 'lost.', { ranks: [1] }),
    }),
    { ranks: [1] },
  ],
  ['none where it has none', new TabringError('gpu.lost', 'removed by Ada'), {}],
])('an error crosses to the page with its code and %s', async (_, thrown, facts) => {
  const error = await thrownAcross(thrown)
  expect(error).toBeInstanceOf(TabringError)
  expect(error).toMatchObject({
    code: (thrown as TabringError).code,
    name: thrown.name,
    message: thrown.message,
  })
  expect(endFactsOf(error)).toEqual(facts)
})
