import { afterEach, describe, expect, test } from 'vitest'
import type { Link, LinkEnd, LinkKind } from '../../src/peer/link/link.ts'
import { Session } from '../../src/peer/session/session.ts'
import { type Env, systemEnv } from '../../src/util/env.ts'

/** Two ends of one open link. */
export interface LinkPair {
  near: Link
  far: Link
  /** Frees what lies below: peer connections, workers. */
  dispose?: () => void
}

export interface ConformanceOptions {
  kind: LinkKind
  open: () => Promise<LinkPair>
  /** Bytes for the flow-control test. */
  streamBytes: number
  /** Called with the MiB per second of that test. */
  report?: (mibPerSec: number) => void
  env?: Env
}

/** What every `Link` must do, whatever carries it; run it once per implementation. */
export function linkConformance(name: string, options: ConformanceOptions): void {
  const { kind, open } = options
  const env = options.env ?? systemEnv
  const opened: LinkPair[] = []
  const openPair = async () => {
    const pair = await open()
    opened.push(pair)
    return pair
  }

  describe(`link: ${name}`, () => {
    afterEach(() => {
      for (const { near, far, dispose } of opened.splice(0)) {
        near.close('test over')
        far.close('test over')
        dispose?.()
      }
    })

    test('says what it is, and has room', async () => {
      const { near, far } = await openPair()
      for (const link of [near, far]) {
        expect(link.kind).toBe(kind)
        expect(link.maxMessageBytes).toBeGreaterThanOrEqual(1024)
        expect(link.room()).toBeGreaterThan(0)
      }
    })

    test('messages arrive whole, in order, both ways', async () => {
      const { near, far } = await openPair()
      const sizes = [1, 31, 32, 33, 1000, 65_535, near.maxMessageBytes, 4]
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        const got = collect(to, sizes.length)
        for (const [index, size] of sizes.entries()) {
          await roomIn(from)
          from.send(pattern(Math.min(size, from.maxMessageBytes), index))
        }
        const messages = await got
        messages.forEach((message, index) => {
          expect(message.length).toBe(Math.min(sizes[index]!, from.maxMessageBytes))
          expect(firstDifference(message, pattern(message.length, index))).toBe(-1)
        })
      }
    })

    test('nothing arrives on the stack of the sender', async () => {
      const { near, far } = await openPair()
      let hasArrived = false
      const arrived = new Promise<void>((resolve) => {
        far.onmessage = () => {
          hasArrived = true
          resolve()
        }
      })
      near.send(pattern(8, 1))
      expect(hasArrived).toBe(false)
      await arrived
    })

    test('the bytes sent are those at the time of sending, part of a buffer or given away', async () => {
      const { near, far } = await openPair()
      const got = collect(far, 3)
      const scratch = pattern(256, 1)
      near.send(scratch)
      scratch.fill(0)
      near.send(pattern(256, 2).subarray(64, 128))
      near.send(pattern(256, 3), true)
      const [whole, part, given] = await got
      expect(firstDifference(whole!, pattern(256, 1))).toBe(-1)
      expect(firstDifference(part!, pattern(256, 2).subarray(64, 128))).toBe(-1)
      expect(firstDifference(given!, pattern(256, 3))).toBe(-1)
    })

    test('what arrives before anyone listens is kept', async () => {
      const { near, far } = await openPair()
      near.send(pattern(5, 1))
      near.send(pattern(6, 2))
      await pause(50)
      const messages = await collect(far, 2)
      expect(messages.map((message) => message.length)).toEqual([5, 6])
    })

    test('room() reports a full queue, and onroom when to continue', async () => {
      const { near, far } = await openPair()
      far.onmessage = () => undefined
      if (near.room() === Number.POSITIVE_INFINITY) return
      let sentBytes = 0
      while (near.room() > 0 && sentBytes < 64 * 2 ** 20) {
        near.send(pattern(near.maxMessageBytes, 0))
        sentBytes += near.maxMessageBytes
      }
      expect(near.room()).toBeLessThanOrEqual(0)
      expect(sentBytes).toBeLessThan(2 * 2 ** 20)
      await roomIn(near)
      expect(near.room()).toBeGreaterThan(0)
    })

    test('closing: what was sent still arrives, the other side hears once, twice is once', async () => {
      for (const side of ['near', 'far'] as const) {
        const pair = await openPair()
        const closer = pair[side]
        const other = pair[side === 'near' ? 'far' : 'near']
        const ends: LinkEnd[] = []
        let closerEnd: LinkEnd | undefined
        closer.onend = (end) => {
          closerEnd = end
        }
        const ended = new Promise<void>((resolve) => {
          other.onend = (end) => {
            ends.push(end)
            resolve()
          }
        })
        const got = collect(other, 2)
        closer.send(pattern(1000, 1))
        closer.send(pattern(1000, 2))
        closer.close('enough')
        closer.close('again')
        closer.send(pattern(8, 3))
        await got
        await ended
        await pause(20)
        expect(ends.length).toBe(1)
        expect(['bye', 'closed']).toContain(ends[0]!.why)
        expect(closerEnd).toEqual({ why: 'local', detail: 'enough' })
        expect(closer.room()).toBe(0)
        expect(other.room()).toBe(0)
        other.send(pattern(8, 3))
      }
    })

    test('an end that came before anyone listened is still delivered', async () => {
      const { near, far } = await openPair()
      near.close('early')
      await pause(200)
      const end = await new Promise<LinkEnd>((resolve) => {
        far.onend = resolve
      })
      expect(['bye', 'closed']).toContain(end.why)
    })

    test('stats count messages and bytes of both directions', async () => {
      const { near, far } = await openPair()
      const got = collect(far, 2)
      near.send(pattern(100, 1))
      near.send(pattern(50, 1))
      await got
      await pause(50)
      expect(await near.stats()).toMatchObject({
        bytesSent: 150,
        messagesSent: 2,
        bytesReceived: 0,
      })
      expect(await far.stats()).toMatchObject({ bytesReceived: 150, messagesReceived: 2 })
    })

    // Minutes are for a data channel on a machine whose cores are busy elsewhere.
    test('a session never has more under way than the window, also when nobody consumes', {
      timeout: 180_000,
    }, async () => {
      const { near, far } = await openPair()
      const common = { env, epoch: 1, size: 2 }
      const sender = new Session({ ...common, link: near, rank: 0, peerRank: 1 })
      const receiver = new Session({ ...common, link: far, rank: 1, peerRank: 0 })
      const errors: Error[] = []
      sender.onerror = receiver.onerror = (error) => errors.push(error)
      await Promise.all([sender.ready, receiver.ready])

      let isBlocked = true
      let heldBytes = 0
      let peakHeldBytes = 0
      let receivedBytes = 0
      let done: () => void = () => undefined
      const finished = new Promise<void>((resolve) => {
        done = resolve
      })
      receiver.onframe = (header, message) => {
        receivedBytes += header.length
        heldBytes += message.length
        peakHeldBytes = Math.max(peakHeldBytes, heldBytes)
        if (isBlocked) return
        receiver.consumed(message.length)
        heldBytes -= message.length
        if (receivedBytes >= options.streamBytes) done()
      }
      let sentBytes = 0
      let sentFrames = 0
      const pump = () => {
        for (;;) {
          const length = Math.min(sender.maxPayloadBytes, options.streamBytes - sentBytes)
          if (length === 0 || !sender.hasRoom(length)) return
          sender.sendData(
            { kind: 0x11, group: 0, sequence: 0, bucket: 0 },
            { step: 0, offset: sentBytes % 2 ** 31, length },
            quiet,
          )
          sentBytes += length
          sentFrames++
        }
      }
      sender.onwritable = pump
      pump()
      await pause(300)
      const { windowBytes } = sender
      expect(sentBytes, 'with the consumer blocked').toBeLessThanOrEqual(windowBytes)
      expect(sentBytes).toBeGreaterThan(windowBytes / 2)
      // All of them are under way, so that many were at most; asked again, still.
      for (const _ of [1, 2]) expect(sender.takeRecentPeaks().peakInFlightFrames).toBe(sentFrames)

      isBlocked = false
      const startedMs = performance.now()
      const before = receivedBytes
      receiver.consumed(heldBytes)
      heldBytes = 0
      await finished
      const seconds = (performance.now() - startedMs) / 1000
      options.report?.((receivedBytes - before) / 2 ** 20 / seconds)
      expect(receivedBytes).toBe(options.streamBytes)
      expect(sender.stats.peakInFlightBytes).toBeLessThanOrEqual(windowBytes)
      expect(peakHeldBytes).toBeLessThanOrEqual(windowBytes)
      expect(errors).toEqual([])
      await sender.leave('done')
      expect(receiver.isReady).toBe(false)
    })
  })
}

const quiet = { writeSegment: () => undefined }

function pattern(length: number, seed: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length)
  for (let i = 0; i < length; i++) bytes[i] = (i * 31 + (i >> 8) + seed) & 255
  return bytes
}

/** Index of the first byte that differs, -1 for none; comparing element by element is too slow in a test library. */
function firstDifference(a: Uint8Array, b: Uint8Array): number {
  if (a.length !== b.length) return Math.min(a.length, b.length)
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return i
  return -1
}

/** Resolves with the next `count` messages of `link`. */
function collect(link: Link, count: number): Promise<Uint8Array[]> {
  return new Promise((resolve) => {
    const messages: Uint8Array[] = []
    link.onmessage = (message) => {
      messages.push(message)
      if (messages.length === count) resolve(messages)
    }
  })
}

function roomIn(link: Link): Promise<void> {
  if (link.room() > 0) return Promise.resolve()
  return new Promise((resolve) => {
    link.onroom = () => {
      if (link.room() > 0) resolve()
    }
  })
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, durationMs)
  })
}
