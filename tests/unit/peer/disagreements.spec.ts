import { describe, expect, test } from 'vitest'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import {
  type AbortRecord,
  emptyHeader,
  encodeFingerprint,
  encodeHeader,
  encodeHello,
  FrameType,
  headerBytes,
} from '../../../src/peer/link/wire.ts'
import { Session } from '../../../src/peer/session/session.ts'
import type { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

// Ranks that want different things of each other, and a neighbour that speaks the protocol wrongly.

test('a collective rejects before any byte is written when ranks call different ones', async () => {
  const cases: [(group: ProcessGroup, rank: number) => Promise<unknown>, RegExp][] = [
    [
      (group, rank) => group.allReduce(new Float32Array(100 + rank), { sequence: 1 }),
      /ranks disagree: rank \d runs allReduce of 10\d elements.*rank \d runs allReduce of 10\d/,
    ],
    [
      (group, rank) =>
        rank === 0
          ? group.allReduce(new Float32Array(8), { sequence: 1 })
          : group.reduceScatter(new Float32Array(8), { sequence: 1 }),
      /rank \d runs (allReduce|reduceScatter) of 8 .*rank \d runs (allReduce|reduceScatter) of 8/,
    ],
    [
      (group, rank) => group.broadcast(new Float32Array(8), rank, { sequence: 1 }),
      /\(root \d, direct\).*\(root \d, direct\)/,
    ],
    [
      (group, rank) =>
        group.allReduce(new Float32Array(8), { sequence: 1, op: rank ? 'sum' : 'avg' }),
      /\(avg/,
    ],
    [
      (group, rank) =>
        group.allReduce(new Float32Array(8), { sequence: 1, alignment: rank ? 4 : 1 }),
      /\(alignment 4, /,
    ],
  ]
  for (const [call, text] of cases)
    for (const size of [2, 3]) {
      const env = new VirtualEnv(1)
      const { groups } = memoryRing(env, size)
      const errors = (await env.until(outcomes(groups.map(call)), 1000)) as PeerError[]
      for (const error of errors) {
        expect(error.code).toBe('peer.mismatch')
        expect(error.message).toMatch(text)
      }
    }
})

test('a session does not start when HELLO shows another group', async () => {
  const env = new VirtualEnv(1)
  const [first, second] = memoryPair(env)
  const common = { env, epoch: 1, rank: 0, peerRank: 1, config: {} }
  const one = new Session({ ...common, link: first, size: 2 })
  const two = new Session({ ...common, link: second, size: 3, rank: 1, peerRank: 0 })
  const errors = await env.until(outcomes([one.ready, two.ready]))
  expect(errors[0]!.message).toMatch(/expected HELLO from rank 1 of 2, got rank 1 of 3/)
  expect(errors[1]).toHaveProperty('code', 'peer.mismatch')

  const [third, fourth] = memoryPair(env)
  const three = new Session({ ...common, link: third, size: 2 })
  const four = new Session({ ...common, link: fourth, size: 2, rank: 1, peerRank: 0, epoch: 2 })
  const late = await env.until(outcomes([three.ready, four.ready]))
  expect(late[0]!.message).toMatch(
    /waited 15000 ms for HELLO from rank 1; \d+ frames of another membership came, last of membership 2/,
  )
})

test('ABORT ends the rank when its text is too long, and is passed on truncated', async () => {
  const env = new VirtualEnv(1)
  const pairs = [1, 2].map(() => memoryPair(env, { maxMessageBytes: 1024 }))
  const links = new Map(pairs.map(([link], at) => [at + 1, link]))
  const group = new ProcessGroup({ rank: 0, size: 3, epoch: 3, links, env })
  const sessions = pairs.map(
    ([, link], at) => new Session({ link, env, epoch: 3, rank: at + 1, peerRank: 0, size: 3 }),
  )
  const passedOn = new Promise<AbortRecord>((resolve) => {
    sessions[1]!.onabort = resolve
  })
  const pending = outcomes([group.allReduce(new Float32Array(8))])
  await env.until(Promise.all(sessions.map((session) => session.ready)))
  // Its code fills it, and each of these bytes is a character of three when it is passed on.
  const payload = new Uint8Array(1024 - headerBytes).fill(0xff)
  payload.set([1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xcc, 0x03, 0, 0])
  const message = new Uint8Array(1024)
  message.set(payload, headerBytes)
  const header = { ...emptyHeader(), type: FrameType.abort, epoch: 3, number: 1 }
  encodeHeader({ ...header, length: payload.length }, message)
  pairs[0]![1].send(message)
  const [error] = await env.until(pending, 1000)
  expect(error).toMatchObject({ code: 'peer.aborted' })
  expect(error!.message).toMatch(/^allReduce #0: rank 1: /)
  expect((await env.until(passedOn, 1000)).text).toBe(group.error!.message)
})

describe('a neighbour that speaks the protocol wrongly', () => {
  /** Rank 1 of 2 is played by hand; returns the error with which rank 0 rejects, once the link has ended for one of the protocol. */
  async function answerOf(play: (session: Session) => void): Promise<PeerError> {
    const env = new VirtualEnv(1)
    const [link, hand] = memoryPair(env)
    const group = new ProcessGroup({ rank: 0, size: 2, epoch: 3, links: new Map([[1, link]]), env })
    const session = new Session({ link: hand, env, epoch: 3, rank: 1, peerRank: 0, size: 2 })
    const pending = outcomes([
      group.allReduce(new Float32Array(8), { sequence: 5, algorithm: 'ring' }),
    ])
    await env.until(session.ready)
    play(session)
    const error = (await env.until(pending, 1000))[0] as PeerError
    expect(hand.room() === 0).toBe(error.code === 'peer.protocol')
    return error
  }
  const route = (sequence = 5) => ({ kind: 3 | (1 << 4), group: 0, sequence, bucket: 0 })
  const startOf = (elements: number) => ({
    begun: 1,
    fingerprint: encodeFingerprint({
      ...{ elements, alignment: 1, root: 0, reduction: 0, algorithm: 0, machines: 0 },
      label: '',
    }),
  })
  const sent = { origin: 1, lost: null, code: 'peer.aborted', text: 'enough' }
  /** One frame played by hand. */
  const start =
    (elements = 8) =>
    (session: Session) =>
      session.sendStart(route(), startOf(elements))
  const data =
    (step: number, offset: number, length: number, sequence = 5, elements?: number) =>
    (session: Session) =>
      session.sendData(
        route(sequence),
        { step, offset, length },
        { writeSegment: (_part, target, at) => target.fill(0, at, at + length) },
        elements === undefined ? undefined : startOf(elements),
      )
  const dataWithStart = (offset: number, length: number, elements = 8) =>
    data(0, offset, length, 5, elements)

  test.each<[string, ((session: Session) => void)[], RegExp]>([
    [
      'data without START',
      [data(0, 0, 16)],
      /data for allReduce #5 bucket 0, which the sender has not/,
    ],
    [
      'data of another sequence',
      [start(), data(0, 0, 16, 6)],
      /data for allReduce #6 bucket 0, wh/,
    ],
    ['no such step', [start(), data(7, 0, 16)], /expected no data at step 7/],
    [
      'bytes that came before',
      [start(), data(0, 0, 8), data(0, 4, 8)],
      /step 0, chunk 0: expected offset 8, got 4: bytes were repeated/,
    ],
    [
      'a hole',
      [start(), data(0, 8, 8)],
      /step 0, chunk 0: expected offset 0, got 8: bytes are miss/,
    ],
    [
      'more than the chunk holds',
      [start(), data(0, 0, 20)],
      /expected whole elements within 16 bytes, got 20 bytes at offset 0/,
    ],
    ['half an element', [start(), data(0, 0, 6)], /expected whole elements/],
    [
      'ABORT of a group that nobody made',
      [(session) => session.sendAbort({ ...sent, group: 1 })],
      /expected ABORT of one of 1 groups, got group 1/,
    ],
    ['START twice', [start(), start()], /a second START for allReduce #5/],
    ['START again with data', [start(), dataWithStart(0, 16)], /a second START for allReduce #5/],
    [
      'a hole behind START in one message',
      [dataWithStart(8, 8)],
      /step 0, chunk 0: expected offset 0, got 8: bytes are miss/,
    ],
    [
      'another length, with data',
      [dataWithStart(0, 16, 9)],
      /ranks disagree: rank 0 runs allReduce of 8 .*rank 1 runs allReduce of 9/,
    ],
    [
      'half a START',
      [(session) => session.sendStart(route(), { begun: 1, fingerprint: new Uint8Array(8) })],
      /rank 0 got a bad frame from rank 1: frame: expected a START payload of 56 bytes, got 8\.$/,
    ],
    [
      'another length',
      [start(9)],
      /ranks disagree: rank 0 runs allReduce of 8 .*rank 1 runs allReduce of 9/,
    ],
  ])('%s', async (_name, frames, text) => {
    const error = await answerOf((session) => {
      for (const send of frames) send(session)
    })
    expect(error.message).toMatch(/^allReduce #5 bucket 0: /)
    expect(error.message).toMatch(text)
  })

  test('gets no answers to pings when it reads nothing', async () => {
    const env = new VirtualEnv(1)
    const [link, hand] = memoryPair(env)
    const session = new Session({ link, env, epoch: 3, rank: 0, peerRank: 1, size: 2 })
    const other = new Session({ link: hand, env, epoch: 3, rank: 1, peerRank: 0, size: 2 })
    await env.until(Promise.all([session.ready, other.ready]))
    link.room = () => 0
    const before = session.stats.controlFramesSent
    const ping = new Uint8Array(headerBytes)
    const fields = { ...emptyHeader(), type: FrameType.ping, epoch: 3 }
    for (let sent = 0; sent < 100; sent++) {
      encodeHeader({ ...fields, number: other.stats.controlFramesSent + sent }, ping)
      hand.send(ping)
    }
    await env.advance(10)
    expect(session.isReady).toBe(true)
    expect(session.stats.controlFramesSent).toBe(before)
  })

  const hello = encodeHello({ rank: 1, size: 2, maxMessageBytes: 65536, windowBytes: 65536 })
  type Sent = readonly [type: number, credit: number, payload?: Uint8Array]

  test.each<[string, readonly Sent[], RegExp]>([
    ['frames before HELLO', [[FrameType.ping, 0]], /expected HELLO first, got ping/],
    [
      'credit for bytes that were never sent',
      [
        [FrameType.hello, 0, hello],
        [FrameType.credit, 1000],
      ],
      /credit for 1000 bytes, but only 0 are in flight/,
    ],
  ])('%s: the link ends', async (_, frames, text) => {
    const env = new VirtualEnv(1)
    const [link, hand] = memoryPair(env)
    const session = new Session({ link, env, epoch: 3, rank: 0, peerRank: 1, size: 2 })
    const errors: string[] = []
    session.onerror = (error) => errors.push(error.message)
    let end: string | undefined
    hand.onend = ({ detail }) => {
      end = detail
    }
    for (const [number, [type, credit, payload = new Uint8Array(0)]] of frames.entries()) {
      const message = new Uint8Array(headerBytes + payload.length)
      message.set(payload, headerBytes)
      encodeHeader(
        { ...emptyHeader(), epoch: 3, type, number, credit, length: payload.length },
        message,
      )
      hand.send(message)
    }
    await env.advance(10)
    expect(errors).toEqual([expect.stringMatching(text)])
    expect(end).toMatch(text)
  })
})

test('a rank that waits in vain says what the other runs, which it has not called', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 2)
  const errors = await env.until(
    outcomes([
      groups[0]!.allReduce(new Float32Array(8), { sequence: 7, label: 'wrap' }),
      groups[1]!.barrier({ label: 'saveCheckpoint' }),
    ]),
    60_000,
  )
  for (const error of errors) {
    expect(error).toMatchObject({ code: 'peer.timeout' })
    expect(error!.message).toMatch(
      /waited 30000 ms .*; it runs (wrap, via allReduce|saveCheckpoint, via barrier) .*which rank \d has not called\. Every rank must call/,
    )
  }
})
