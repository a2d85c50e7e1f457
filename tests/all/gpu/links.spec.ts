import { afterEach, describe, expect, test } from 'vitest'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { ChannelLink } from '../../../src/peer/link/channel.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { PortLink } from '../../../src/peer/link/port.ts'
import { PumpLink, pumpChannel } from '../../../src/peer/link/pump.ts'
import { Session } from '../../../src/peer/session/session.ts'
import { systemEnv } from '../../../src/util/env.ts'
import type { FarEnd } from '../../support/link.worker.ts'
import { linkConformance } from '../../support/link-conformance.ts'
import { bulkChannels, channelOpen, connectPeers } from '../../support/peer-connections.ts'

// Vitest's own page: what a link carries here says how it behaves, not how fast two tabs are.
const report = (name: string) => (mibPerSec: number) =>
  console.log(`${name}: ${mibPerSec.toFixed(1)} MiB/s through one credit window`)

linkConformance('MessagePort', {
  kind: 'port',
  streamBytes: 64 * 2 ** 20,
  report: report('MessagePort'),
  open: async () => {
    const { port1, port2 } = new MessageChannel()
    return { near: new PortLink(port1), far: new PortLink(port2) }
  },
})

linkConformance('RTCDataChannel', {
  kind: 'webrtc',
  streamBytes: 64 * 2 ** 20,
  report: report('RTCDataChannel'),
  open: async () => {
    const { links, close } = await openChannels()
    return { near: links[0], far: links[1], dispose: close }
  },
})

linkConformance('RTCDataChannel, pumped through a MessagePort', {
  kind: 'webrtc',
  streamBytes: 8 * 2 ** 20,
  report: report('pumped RTCDataChannel'),
  open: async () => {
    let channels!: [RTCDataChannel, RTCDataChannel]
    let near!: Link
    let far!: Link
    const { close } = await connectPeers((a, b) => {
      channels = bulkChannels(a, b)
      near = new ChannelLink(channels[0])
      const { port1, port2 } = new MessageChannel()
      pumpChannel(channels[1], port1)
      far = new PumpLink(port2)
    })
    await Promise.all([untilRoom(near), untilRoom(far)])
    return { near, far, dispose: close }
  },
})

async function openChannels(): Promise<{ links: [ChannelLink, ChannelLink]; close: () => void }> {
  let channels!: [RTCDataChannel, RTCDataChannel]
  let links!: [ChannelLink, ChannelLink]
  const { close } = await connectPeers((near, far) => {
    channels = bulkChannels(near, far)
    links = [new ChannelLink(channels[0]), new ChannelLink(channels[1])]
  })
  await Promise.all(links.map(untilRoom))
  return { links, close }
}

async function untilRoom(link: Link): Promise<void> {
  while (link.room() <= 0) await pause(2)
}

const pause = (durationMs: number) =>
  new Promise<void>((resolve) => {
    setTimeout(resolve, durationMs)
  })

describe('links that end in a worker', () => {
  const cleanups: (() => void)[] = []
  afterEach(() => {
    for (const cleanup of cleanups.splice(0)) cleanup()
  })

  function startWorker() {
    const worker = new Worker(new URL('../../support/link.worker.ts', import.meta.url), {
      type: 'module',
    })
    cleanups.push(() => worker.terminate())
    const reports: { end?: unknown; error?: string; receivedBytes?: number }[] = []
    worker.onmessage = ({ data }) => reports.push(data)
    return { worker, reports }
  }

  type Opened = { link: Link; reports: ReturnType<typeof startWorker>['reports'] }
  const kinds: Record<string, (far: FarEnd) => Promise<Opened>> = {
    'a MessagePort': async (far) => {
      const { worker, reports } = startWorker()
      const { port1, port2 } = new MessageChannel()
      worker.postMessage({ ...far, port: port2 }, [port2])
      return { link: new PortLink(port1), reports }
    },
    'a transferred data channel': async (far) => {
      const { worker, reports } = startWorker()
      let near!: RTCDataChannel
      let link!: Link
      const { close } = await connectPeers((a, b) => {
        const channels = bulkChannels(a, b)
        near = channels[0]
        link = new ChannelLink(near)
        // In the task that made it: later it can no longer be transferred.
        worker.postMessage({ ...far, channel: channels[1] }, [
          channels[1] as unknown as Transferable,
        ])
      })
      cleanups.push(close)
      await channelOpen(near)
      return { link, reports }
    },
    'a pumped data channel': async (far) => {
      const { worker, reports } = startWorker()
      let near!: RTCDataChannel
      let link!: Link
      const { close } = await connectPeers((a, b) => {
        const channels = bulkChannels(a, b)
        near = channels[0]
        link = new ChannelLink(near)
        const { port1, port2 } = new MessageChannel()
        pumpChannel(channels[1], port1)
        worker.postMessage({ ...far, pump: port2 }, [port2])
      })
      cleanups.push(close)
      await channelOpen(near)
      return { link, reports }
    },
  }

  test.each(Object.keys(kinds))('%s: messages come back whole, the end is heard', async (kind) => {
    const { link, reports } = await kinds[kind]!({ role: 'echo' })
    const sizes = [1, 32, 1000, 65_536, 4]
    const got: number[] = []
    const done = new Promise<void>((resolve) => {
      link.onmessage = (message) => {
        got.push(message.length)
        expect(message[message.length - 1]).toBe(message.length & 255)
        if (got.length === sizes.length) resolve()
      }
    })
    for (const size of sizes) link.send(new Uint8Array(size).fill(size & 255))
    await done
    expect(got).toEqual(sizes)
    link.close('enough')
    await expect.poll(() => reports.length, { timeout: 5000 }).toBe(1)
    expect(reports[0]).toMatchObject({ end: { why: 'closed' } })
  })

  test.each(Object.keys(kinds))(
    '%s: a worker that stands still for 1.5 s holds back the sender',
    async (kind) => {
      const { link, reports } = await kinds[kind]!({ role: 'sink', blockMs: 1500 })
      const session = new Session({ link, env: systemEnv, epoch: 1, rank: 0, peerRank: 1, size: 2 })
      await session.ready
      const totalBytes = 16 * 2 ** 20
      let sentBytes = 0
      let done!: () => void
      const allSent = new Promise<void>((resolve) => {
        done = resolve
      })
      const pump = () => {
        while (sentBytes < totalBytes) {
          const length = Math.min(session.maxPayloadBytes, totalBytes - sentBytes)
          if (!session.hasRoom(length)) return
          session.sendData(
            { kind: 0x11, group: 0, sequence: 0, bucket: 0 },
            { step: 0, offset: 0, length },
            { writeSegment: () => undefined },
          )
          sentBytes += length
        }
        done()
      }
      session.onwritable = pump
      pump()
      await pause(1000)
      expect(sentBytes).toBeLessThanOrEqual(session.windowBytes)
      const startedMs = performance.now()
      await allSent
      await session.leave('done')
      report(`${kind}, page to worker (pause included)`)(
        totalBytes / 2 ** 20 / ((performance.now() - startedMs) / 1000),
      )
      expect(session.stats.peakInFlightBytes).toBeLessThanOrEqual(session.windowBytes)
      await expect.poll(() => reports.length, { timeout: 5000 }).toBe(1)
      expect(reports[0]).toMatchObject({ end: { why: 'bye' }, receivedBytes: totalBytes })
    },
  )
})

describe('a ring in one page', () => {
  test.each([2, 3])('%i ranks over data channels end with the same bits', async (size) => {
    const links = Array.from({ length: size }, () => new Map<number, Link>())
    const closers: (() => void)[] = []
    for (let rank = 0; rank < (size === 2 ? 1 : size); rank++) {
      const next = (rank + 1) % size
      const { links: pair, close } = await openChannels()
      links[rank]!.set(next, pair[0])
      links[next]!.set(rank, pair[1])
      closers.push(close)
    }
    const groups = links.map(
      (own, rank) => new ProcessGroup({ rank, size, epoch: 1, links: own, env: systemEnv }),
    )
    await Promise.all(groups.map((group) => group.ready()))
    const length = 1_000_003
    const buffers = groups.map((_, rank) =>
      Float32Array.from({ length }, (_, i) => Math.sin(i * (rank + 1)) * 1000),
    )
    const startedMs = performance.now()
    await Promise.all(groups.map((group, rank) => group.allReduce(buffers[rank]!)))
    const seconds = (performance.now() - startedMs) / 1000
    console.log(
      `all-reduce of 4 MB, ${size} ranks in one page: ${(seconds * 1000).toFixed(0)} ms, bus ${((2 * (size - 1) * 4 * length) / size / 2 ** 20 / seconds).toFixed(1)} MiB/s`,
    )
    const bits = buffers.map((buffer) => new Uint32Array(buffer.buffer))
    for (const other of bits.slice(1))
      expect(other.every((value, index) => value === bits[0]![index])).toBe(true)
    await Promise.all(groups.map((group) => group.leave()))
    for (const group of groups) expect(group.error).toBeUndefined()
    for (const close of closers) close()
  })

  test('a peer connection that closes in the middle rejects on every rank within 1 s', async () => {
    const { links, close } = await openChannels()
    const groups = links.map(
      (link, rank) =>
        new ProcessGroup({
          rank,
          size: 2,
          epoch: 1,
          links: new Map([[1 - rank, link]]),
          env: systemEnv,
        }),
    )
    await Promise.all(groups.map((group) => group.ready()))
    const pending = groups.map((group) => group.allReduce(new Float32Array(8_000_000)))
    await pause(100)
    const startedMs = performance.now()
    close()
    const settled = await Promise.allSettled(pending)
    expect(performance.now() - startedMs).toBeLessThan(1000)
    for (const one of settled) {
      expect(one.status).toBe('rejected')
      expect(String((one as PromiseRejectedResult).reason)).toMatch(
        /rank \d lost rank \d: .*\(allReduce #0/,
      )
    }
    for (const group of groups) group.destroy()
  })
})
