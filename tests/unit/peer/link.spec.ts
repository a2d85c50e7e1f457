import { expect, test } from 'vitest'
import { type LinkEnd, sumStats } from '../../../src/peer/link/link.ts'
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

test('too many messages that arrive before a handler is set end the link', async () => {
  const env = new VirtualEnv(1)
  const [near, far] = memoryPair(env)
  for (let sent = 0; sent < 1000; sent++) near.send(new Uint8Array(5))
  await env.advance(1)
  const ends: LinkEnd[] = []
  let heard = 0
  far.onend = (end) => ends.push(end)
  far.onmessage = () => heard++
  await env.advance(1)
  expect(ends).toEqual([{ why: 'local', detail: 'it came too early' }])
  expect(heard).toBeLessThan(520)
})

test('sumStats adds each count of all links, from nothing', () => {
  const one = { bytesSent: 1, bytesReceived: 20, messagesSent: 300, messagesReceived: 4000 }
  const none = { bytesSent: 0, bytesReceived: 0, messagesSent: 0, messagesReceived: 0 }
  expect(sumStats([])).toEqual(none)
  expect(sumStats([one, none, one])).toEqual({
    bytesSent: 2,
    bytesReceived: 40,
    messagesSent: 600,
    messagesReceived: 8000,
  })
})
