import { expect, test } from 'vitest'
import type { LinkEnd } from '../../../src/peer/link/link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { PortLink } from '../../../src/peer/link/port.ts'
import { systemEnv } from '../../../src/util/env.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
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

test.each([
  ['long', 64 * 1024],
  ['empty', 0],
])(
  '%s messages that arrive before anyone listens end the link where they are too many',
  async (_, length) => {
    const env = new VirtualEnv(1)
    const [near, far] = memoryPair(env)
    const message = new Uint8Array(length)
    for (let sent = 0; sent < 5000 && near.room() > 0; sent++) {
      near.send(message)
      if (sent % 50 === 0) await env.advance(1)
    }
    const ends: LinkEnd[] = []
    const heard: number[] = []
    far.onend = (end) => ends.push(end)
    far.onmessage = ({ length }) => heard.push(length)
    await env.advance(1)
    expect(ends).toEqual([{ why: 'failed', detail: 'more came than can wait until it is heard' }])
    expect(heard).toEqual([])
  },
)
