import { describe, expect, test } from 'vitest'
import { ProcessGroup } from '../../../src/peer/group.ts'
import { type Fault, type FaultKind, memoryPair } from '../../../src/peer/memory.ts'
import { Session } from '../../../src/peer/session.ts'
import {
  emptyHeader,
  encodeHeader,
  encodeHello,
  FrameType,
  fieldOffset,
  headerBytes,
} from '../../../src/peer/wire.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'
import { VirtualEnv } from '../../support/virtual-env.ts'

const length = 60_000

/** Strikes the `nth` DATA message. */
function dataFault(kind: FaultKind, nth: number, delayMs = 0): Fault {
  let seen = 0
  return {
    kind,
    delayMs,
    strikes: (message) => message[fieldOffset.type] === FrameType.data && ++seen === nth,
  }
}

interface Broken {
  env: VirtualEnv
  groups: ProcessGroup[]
  errors: (PeerError | undefined)[]
  failedAfterMs: number
  buffers: Float32Array[]
}

/** Runs one all-reduce (#42) on `size` ranks with `fault` on the link from rank 1 to the next. */
async function runWith(size: number, fault: Fault, deadlineMs = 5000): Promise<Broken> {
  const env = new VirtualEnv(11)
  const { groups } = memoryRing(
    env,
    size,
    (rank) => ({
      delayMs: () => 1,
      // On two ranks there is one link, from 0 to 1: its way back is the way from 1.
      ...(size === 2 ? { backward: [fault] } : rank === 1 ? { forward: [fault] } : {}),
    }),
    { deadlineMs },
  )
  const buffers = groups.map((_, rank) => new Float32Array(length).fill(rank + 1))
  const startedMs = env.now()
  const errors = (await env.until(
    outcomes(
      groups.map((group, rank) =>
        group.allReduce(buffers[rank]!, { sequence: 42, algorithm: 'ring' }),
      ),
    ),
  )) as (PeerError | undefined)[]
  return { env, groups, errors, failedAfterMs: env.now() - startedMs, buffers }
}

async function expectAllRejected({ env, groups, errors }: Broken): Promise<void> {
  errors.forEach((error, rank) => {
    expect(error?.message, `rank ${rank}`).toMatch(/^allReduce #42 bucket 0 \(epoch 3\): .*rank \d/)
    expect(error?.code).toMatch(/^peer\./)
    expect(groups[rank]!.error?.code).toBe(error?.code)
  })
  // And every later collective, at once.
  const later = await env.until(outcomes(groups.map((group) => group.barrier())), 1)
  for (const error of later) expect(error?.message).toMatch(/^barrier #0 \(epoch 3\): /)
}

describe.each([2, 3, 5])('%i ranks', (size) => {
  const cases: { kind: FaultKind; code: string; text: RegExp; withinMs: number }[] = [
    { kind: 'drop', code: 'peer.protocol', text: /expected frame \d+, got frame/, withinMs: 1500 },
    {
      kind: 'duplicate',
      code: 'peer.protocol',
      text: /expected frame \d+, got frame/,
      withinMs: 1500,
    },
    {
      kind: 'reorder',
      code: 'peer.protocol',
      text: /expected frame \d+, got frame/,
      withinMs: 1500,
    },
    {
      kind: 'truncate',
      code: 'peer.protocol',
      text: /expected \d+ bytes .*got \d+ bytes/,
      withinMs: 500,
    },
    {
      kind: 'wrong-epoch',
      code: 'peer.protocol',
      text: /expected frame \d+, got frame/,
      withinMs: 1500,
    },
    {
      kind: 'close',
      code: 'peer.lost',
      text: /lost rank \d \(closed, the transport closed\)/,
      withinMs: 500,
    },
    {
      kind: 'freeze',
      code: 'peer.timeout',
      text: /rank \d waited 5000 ms for .*rank \d/,
      withinMs: 6000,
    },
    {
      kind: 'one-way',
      code: 'peer.timeout',
      text: /rank \d waited 5000 ms for .*rank \d/,
      withinMs: 6000,
    },
  ]
  test.each(cases)('$kind: every rank rejects, naming rank and operation', async (one) => {
    const fault = dataFault(one.kind, size === 2 ? 1 : 3)
    const broken = await runWith(size, fault)
    expect(fault.fired, 'the fault must have struck').toBe(1)
    await expectAllRejected(broken)
    for (const error of broken.errors) {
      expect(error!.code).toBe(one.code)
      expect(error!.message).toMatch(one.text)
    }
    expect(broken.failedAfterMs).toBeLessThan(one.withinMs)
  })

  test.each(['delay', 'slow'] as const)('%s below the deadline: late, and right', async (kind) => {
    const fault = dataFault(kind, 3, 700)
    const { errors, buffers, failedAfterMs } = await runWith(size, fault)
    expect(fault.fired).toBe(1)
    expect(errors.every((error) => error === undefined)).toBe(true)
    expect(failedAfterMs).toBeGreaterThan(700)
    const sum = (size * (size + 1)) / 2
    for (const buffer of buffers) expect(buffer.every((value) => value === sum)).toBe(true)
  })

  test('delay beyond the deadline: a timeout that rejects on every rank is never swallowed', async () => {
    const fault = dataFault('delay', size === 2 ? 1 : 3, 60_000)
    const broken = await runWith(size, fault)
    expect(fault.fired).toBe(1)
    await expectAllRejected(broken)
    for (const error of broken.errors) expect(error!.code).toBe('peer.timeout')
    expect(broken.failedAfterMs).toBeGreaterThanOrEqual(5000)
    expect(broken.failedAfterMs).toBeLessThan(6000)
  })

  test('a frozen rank with a long deadline is found dead by its heartbeat', async () => {
    const env = new VirtualEnv(1)
    const freeze = (): Fault => ({ kind: 'freeze', strikes: () => env.now() > 2500 })
    const faults = [freeze(), freeze()]
    // Everything into and out of rank 1 stops.
    const { groups } = memoryRing(env, size, (rank) => ({
      delayMs: () => 1,
      ...(rank === 0 ? { forward: [faults[0]!] } : rank === 1 ? { forward: [faults[1]!] } : {}),
    }))
    await env.advance(3000)
    const pending = outcomes(groups.filter((_, rank) => rank !== 1).map((group) => group.barrier()))
    const suspects: number[] = []
    groups[0]!.onsuspect = (rank, isSuspect) => isSuspect && suspects.push(rank)
    const errors = (await env.until(pending, 10_000)) as PeerError[]
    expect(faults[0]!.fired).toBe(1)
    for (const error of errors) {
      expect(error.code).toBe('peer.lost')
      expect(error.message).toMatch(
        /^barrier #0 .*lost rank 1 \(timeout, nothing heard for 8\d\d\d ms\)/,
      )
    }
    expect(suspects).toContain(1)
  })
})

test('frames of another epoch are counted and dropped', async () => {
  const broken = await runWith(3, dataFault('wrong-epoch', 2))
  const stats = broken.groups[2]!.stats().links.get(1)!
  expect(stats.foreignEpochFrames).toBe(1)
})

test('a timeout names who waited, for what, from whom, and when something was last heard', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }), { deadlineMs: 5000 })
  const buffers = groups.map(() => new Float32Array(9))
  // Rank 1 never calls.
  const errors = await env.until(
    outcomes(
      [groups[0]!, groups[2]!].map((group, i) =>
        group.allReduce(buffers[i]!, { sequence: 42, algorithm: 'ring' }),
      ),
    ),
  )
  const texts = errors.map((error) => error!.message)
  expect(texts[1]).toMatch(
    /^allReduce #42 bucket 0 \(epoch 3\): .*rank 2 waited 5000 ms for chunk \d from rank 1; last frame \d+ ms ago; it has not started this collective\. Is that tab in the background\?/,
  )
  expect(groups[1]!.error?.message, 'the rank that was missing hears of it too').toMatch(
    /waited 5000 ms/,
  )
})

test('ranks that call different collectives hear it from each other, before any byte is written', async () => {
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

test('ranks of different groups do not start: the HELLO says so', async () => {
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
    /waited 15000 ms for HELLO from rank 1; \d+ frames of another epoch came, last of epoch 2/,
  )
})

test('abort from outside reaches every rank, with code and text', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 5, () => ({ delayMs: () => 2 }))
  const heard: string[] = []
  for (const group of groups) group.onfailure = (error) => heard.push(error.message)
  const pending = outcomes(groups.slice(1).map((group) => group.barrier()))
  await env.advance(50)
  groups[3]!.abort('signaling says that rank 4 is gone')
  const errors = (await env.until(pending, 20)) as PeerError[]
  for (const error of errors) {
    expect(error.code).toBe('peer.aborted')
    expect(error.message).toMatch(
      /^barrier #0 \(epoch 3\): .*rank 3 aborted: signaling says that rank 4 is gone/,
    )
  }
  expect(heard.length, 'once per rank').toBe(5)
  expect((await groups[0]!.failed).code).toBe('peer.aborted')
})

describe('every rank tells each fact of a failure once', () => {
  const wait =
    'rank 0 waited 1000 ms for chunk 1 from rank 2; last frame 499 ms ago; it has not started this collective. Is that tab in the background?'
  const aborting = (reason: string | PeerError) => (group: ProcessGroup) => group.abort(reason)

  // Ranks 0 and 1 run an all-reduce, rank 2 runs something else; `strike` is done to rank 1.
  test.each<[string, (group: ProcessGroup) => void, operation: string, why: string]>([
    ['in words', aborting('enough'), '', 'rank 1 aborted: enough'],
    [
      'an error that names no rank',
      aborting(new PeerError('train.nan', 'loss: got NaN.')),
      '',
      'rank 1: loss: got NaN.',
    ],
    [
      'what the server says',
      aborting(new PeerError('peer.aborted', 'epoch 3: rank 2 (Ada) is gone: left.')),
      '',
      'rank 2 (Ada) is gone: left.',
    ],
    ['what one collective noticed', () => undefined, 'allReduce #4 bucket 0', wait],
  ])('%s', async (_name, strike, operation, why) => {
    const env = new VirtualEnv(1)
    const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }))
    const pending = outcomes(
      groups.map((group, rank) =>
        rank === 2
          ? group.reduceScatter(new Float32Array(9), { sequence: 5, algorithm: 'ring' })
          : group.allReduce(new Float32Array(9), {
              sequence: 4,
              algorithm: 'ring',
              deadlineMs: rank === 0 ? 1000 : 5000,
            }),
      ),
    )
    await env.advance(50)
    strike(groups[1]!)
    const errors = await env.until(pending, 5000)
    const told = operation ? `${operation}: ${why}` : why
    for (const group of groups) expect(group.error?.message).toBe(`epoch 3: ${told}`)
    expect(errors.map((error) => error?.message)).toEqual([
      `allReduce #4 bucket 0 (epoch 3): ${why}`,
      `allReduce #4 bucket 0 (epoch 3): ${why}`,
      `reduceScatter #5 bucket 0 (epoch 3): ${told}`,
    ])
  })

  test('the rank that leaves rejects what it still waits for', async () => {
    const env = new VirtualEnv(1)
    const { groups } = memoryRing(env, 3)
    const pending = outcomes([groups[0]!.barrier()])
    groups[0]!.destroy('the tab was closed')
    const errors = await env.until(pending, 10)
    expect(errors[0]!.message).toBe('barrier #0 (epoch 3): rank 0 left: the tab was closed.')
  })
})

test('a rank that leaves in the middle ends the others; one that has finished does not', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }))
  const pending = outcomes(groups.slice(1).map((group) => group.barrier()))
  await env.advance(20)
  groups[0]!.destroy('the tab was closed')
  const errors = (await env.until(pending, 100)) as PeerError[]
  for (const error of errors)
    expect(error.message).toMatch(/lost rank 0 \(bye, the tab was closed\)/)
})

test('a goodbye that nobody answers is no failure of the one that leaves', async () => {
  const env = new VirtualEnv(1)
  const freeze: Fault = { kind: 'freeze', strikes: () => env.now() >= 100 }
  const { groups } = memoryRing(env, 3, (rank) => (rank === 0 ? { forward: [freeze] } : {}))
  await env.until(Promise.all(groups.map((group) => group.barrier())))
  const heard: string[] = []
  for (const group of groups) group.onfailure = (error) => heard.push(error.message)
  await env.advance(100)
  await env.until(Promise.all(groups.map((group) => group.leave())), 7000)
  expect(freeze.fired).toBe(1)
  expect(heard).toEqual([])
})

test('who still waits for HELLO hears at once that the epoch is over', async () => {
  const env = new VirtualEnv(1)
  const cut: Fault = { kind: 'one-way', strikes: () => true }
  const { groups } = memoryRing(env, 4, (rank) => (rank === 0 ? { backward: [cut] } : {}))
  const waiting = outcomes([groups[0]!.ready()])
  await env.advance(50)
  groups[2]!.abort('enough')
  const [error] = await env.until(waiting, 10)
  expect(cut.fired).toBe(1)
  expect(error).toBe(groups[0]!.error)
  expect(error?.message).toBe('epoch 3: rank 2 aborted: enough')
})

test('a link that ends while nothing is under way is a failure at once', async () => {
  const env = new VirtualEnv(1)
  const { groups, edges } = memoryRing(env, 3)
  await env.until(Promise.all(groups.map((group) => group.ready())))
  edges[0]![0].close('the connection was cut')
  await env.advance(10)
  for (const group of groups) expect(group.error?.code).toBe('peer.lost')
})

test('our own long pause is not taken for the neighbour’s death', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 2)
  await env.until(Promise.all(groups.map((group) => group.ready())))
  // A worker that compiles for 20 s: its timers and messages all run afterwards.
  const now = env.now.bind(env)
  let skippedMs = 0
  env.now = () => now() + skippedMs
  skippedMs = 20_000
  await env.advance(3000)
  for (const group of groups) expect(group.error).toBeUndefined()
})

describe('a neighbour that speaks the protocol wrongly', () => {
  /** Rank 1 of 2 is played by hand; returns the error with which rank 0 rejects. */
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
    return (await env.until(pending, 1000))[0] as PeerError
  }
  const route = (sequence = 5) => ({ kind: 3 | (1 << 4), group: 0, sequence, bucket: 0 })
  const startOf = (elements: number) => ({
    begun: 1,
    fingerprint: new Uint8Array(Uint32Array.of(elements, 1, 0, 0, 0, 0).buffer),
  })
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
    ['data without START', [data(0, 0, 16)], /data for allReduce #5 bucket 0, which it has not/],
    [
      'data of another sequence',
      [start(), data(0, 0, 16, 6)],
      /data for allReduce #6 bucket 0, wh/,
    ],
    ['no such step', [start(), data(7, 0, 16)], /expected no data at step 7/],
    [
      'bytes that came before',
      [start(), data(0, 0, 8), data(0, 4, 8)],
      /step 0, chunk 0: expected offset 8, got 4: bytes that came before came again/,
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
      /rank 0 got a bad frame from rank 1: frame: expected a START payload of 24 bytes, got 8\.$/,
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
    expect(error.message).toMatch(/^allReduce #5 bucket 0 \(epoch 3\): /)
    expect(error.message).toMatch(text)
  })

  test('credit for bytes that were never sent, frames before HELLO', async () => {
    const env = new VirtualEnv(1)
    const [link, hand] = memoryPair(env)
    const session = new Session({ link, env, epoch: 3, rank: 0, peerRank: 1, size: 2 })
    const errors: string[] = []
    session.onerror = (error) => errors.push(error.message)
    const send = (
      type: number,
      number: number,
      credit: number,
      payload: Uint8Array = new Uint8Array(0),
    ) => {
      const message = new Uint8Array(headerBytes + payload.length)
      message.set(payload, headerBytes)
      encodeHeader(
        { ...emptyHeader(), epoch: 3, type, number, credit, length: payload.length },
        message,
      )
      hand.send(message)
    }
    const hello = encodeHello({ rank: 1, size: 2, maxMessageBytes: 65536, windowBytes: 65536 })
    send(FrameType.ping, 0, 0)
    send(FrameType.hello, 1, 0, hello)
    send(FrameType.credit, 2, 1000)
    await env.advance(1)
    expect(errors[0]).toMatch(/expected HELLO first, got ping/)
    expect(errors[1]).toMatch(/credit for 1000 bytes, but only 0 are under way/)
  })
})
