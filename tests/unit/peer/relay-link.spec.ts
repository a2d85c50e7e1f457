import { afterAll, beforeAll } from 'vitest'
import { linkConformance } from '../../support/link-conformance.ts'
import { type RelayServer, startRelay } from '../../support/relay-server.ts'

let relay: RelayServer
beforeAll(async () => {
  relay = await startRelay()
})
afterAll(() => relay.close())

linkConformance('WebSockets through the signaling server', {
  kind: 'relay',
  streamBytes: 32 * 2 ** 20,
  report: (rate) => console.log(`relay: ${rate.toFixed(1)} MiB/s`),
  open: () => relay.open(),
})
