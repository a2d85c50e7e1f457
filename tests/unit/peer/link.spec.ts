import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { PortLink } from '../../../src/peer/link/port.ts'
import { systemEnv } from '../../../src/util/env.ts'
import { linkConformance } from '../../support/link-conformance.ts'

linkConformance('memory', {
  kind: 'memory',
  streamBytes: 8 * 2 ** 20,
  open: async () => {
    const [near, far] = memoryPair(systemEnv, { highWaterBytes: 256 * 1024 })
    return { near, far }
  },
})

linkConformance("MessagePort, Node's own", {
  kind: 'port',
  streamBytes: 64 * 2 ** 20,
  open: async () => {
    const { port1, port2 } = new MessageChannel()
    return { near: new PortLink(port1), far: new PortLink(port2) }
  },
})
