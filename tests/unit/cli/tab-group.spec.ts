import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { TabGroup } from '../../../node/train/tab-group.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const ignore = () => undefined
const failed = (rank: number | null, code: string, message: string) => ({
  ok: false,
  rank,
  code,
  message,
})
const done = (rank: number) =>
  JSON.stringify({
    ok: true,
    rank,
    bytesSent: 5,
    result: {
      steps: 1,
      loss: null,
      trainValue: 0.1,
      testAccuracy: 0.1,
      heldOutLoss: 2,
      value: 0.1,
      paramHash: 'a',
      samples: 3,
      seconds: 1,
    },
  })

test('words may come as JSON text or as objects, and results are ordered by rank', async () => {
  const heard: unknown[] = []
  const group = new TabGroup({
    worldSize: 2,
    timeoutMs: 1000,
    onEvent: (event) => heard.push(event),
  })
  group.event(0, '{"event":"phase","phase":"load","rank":1}')
  expect([group.nameOf(0), group.nameOf(1)]).toEqual(['rank 1', 'tab 2 of 2'])
  group.done(0, done(1))
  group.done(1, JSON.parse(done(0)))
  expect((await group.finished).map(({ rank }) => rank)).toEqual([0, 1])
  expect(heard.length).toBe(1)
  await group.firstWord
  expect(vi.getTimerCount()).toBe(0)
})

test('the failure nearest to the cause is reported, in any order of arrival', async () => {
  const group = new TabGroup({ worldSize: 3, timeoutMs: 60_000, onEvent: ignore })
  group.done(0, failed(0, 'peer.aborted', 'rank 2 gave up'))
  group.done(1, failed(1, 'peer.lost', 'the link to rank 2 ended'))
  group.done(2, failed(2, 'gpu.lost', 'device lost\n    at somewhere.js:1'))
  await vi.advanceTimersByTimeAsync(1000)
  await expect(group.finished).rejects.toMatchObject({
    code: 'gpu.lost',
    message: 'rank 2: device lost',
  })
  group.stop()
  expect(vi.getTimerCount()).toBe(0)
})

test('a report that cannot be read is a failure of its tab', async () => {
  const group = new TabGroup({ worldSize: 1, timeoutMs: 60_000, onEvent: ignore })
  group.done(0, { ok: true, rank: 0 })
  await vi.advanceTimersByTimeAsync(1000)
  await expect(group.finished).rejects.toThrow('tab 1 of 1: its result is invalid: bad')
})

test('each event of a tab restarts its timeout', async () => {
  const group = new TabGroup({ worldSize: 1, timeoutMs: 4000, onEvent: ignore })
  for (let i = 0; i < 5; i++) {
    await vi.advanceTimersByTimeAsync(3000)
    group.event(0, { event: 'phase', phase: 'train', rank: 0 })
  }
  await vi.advanceTimersByTimeAsync(5100)
  await expect(group.finished).rejects.toMatchObject({ code: 'peer.timeout' })
})

const begun = (rank: number) => ({ event: 'phase', phase: 'load', rank })
const joined = (rank: number) => ({ event: 'regrouped', step: 9, worldSize: 3, rank })

test('an elastic run ends well without a tab that was lost, and with one that joined', async () => {
  const received: string[] = []
  const onLost = (text: string) => received.push(text)
  const group = new TabGroup({ worldSize: 3, timeoutMs: 60_000, onEvent: ignore, onLost })
  for (const tab of [0, 1, 2]) group.event(tab, begun(tab))
  group.lose(1, 'its tab crashed.')
  const joiner = group.add()
  expect([group.ranks, group.coming]).toEqual([2, 1])
  group.event(joiner, begun(2))
  expect([group.ranks, group.coming]).toEqual([2, 1])
  group.event(joiner, joined(2))
  expect([group.ranks, group.coming]).toEqual([3, 0])
  // It crashed, and says no more; its rank is another's.
  group.done(1, failed(1, 'peer.lost', 'late'))
  for (const [tab, rank] of [0, 1, 2].map((rank) => [[0, 2, joiner][rank], rank]))
    group.done(tab, done(rank))
  expect((await group.finished).map(({ rank }) => rank)).toEqual([0, 1, 2])
  expect(received).toEqual(['rank 1: its tab crashed.'])
})

test.each([
  [
    'that it leaves out',
    'peer.aborted',
    'epoch 1: the run continues without this tab: rank 1 (guest) did not answer within 1500 ms.',
  ],
  ['that stopped for so long that the server let it go', 'signal.lost', 'signaling: it ended.'],
  ['whose worker ended', 'worker.dead', 'compute worker: ended (crashed).'],
])('an elastic run ends well without a tab %s', async (_, code, message) => {
  const received: string[] = []
  const onLost = (text: string) => received.push(text)
  const group = new TabGroup({ worldSize: 2, timeoutMs: 60_000, onEvent: ignore, onLost })
  for (const tab of [0, 1]) group.event(tab, begun(tab))
  // Its page reports it once more.
  const isLeftOut = code === 'peer.aborted'
  for (let i = 0; i < 2; i++) group.done(1, { ...failed(1, code, message), isLeftOut })
  await vi.advanceTimersByTimeAsync(1000)
  group.done(0, done(0))
  expect(await group.finished).toHaveLength(1)
  expect(received).toEqual([`rank 1: ${message}`])
})

test('an elastic run does not wait for a tab that has not joined, nor end by its failure', async () => {
  const received: string[] = []
  const onLost = (text: string) => received.push(text)
  const group = new TabGroup({ worldSize: 2, timeoutMs: 60_000, onEvent: ignore, onLost })
  for (const tab of [0, 1]) group.event(tab, begun(tab))
  group.lose(1, 'its tab crashed.')
  const first = group.add()
  group.done(first, failed(null, 'gpu.unavailable', 'no adapter'))
  const second = group.add()
  group.done(second, failed(1, 'peer.aborted', 'the run has ended'))
  group.add()
  group.done(0, done(0))
  expect(await group.finished).toHaveLength(1)
  expect(received).toEqual([
    'rank 1: its tab crashed.',
    'the new tab: no adapter',
    'the new tab: the run has ended',
  ])
})

test('a tab that gets ready to join is no rank yet: it neither continues the run nor is named as a rank', async () => {
  const received: string[] = []
  const onLost = (text: string) => received.push(text)
  const group = new TabGroup({ worldSize: 2, timeoutMs: 60_000, onEvent: ignore, onLost })
  for (const tab of [0, 1]) group.event(tab, begun(tab))
  group.lose(1, 'its tab crashed.')
  const [first, second] = [group.add(), group.add()]
  for (const joiner of [first, second]) group.event(joiner, begun(1))
  group.lose(first, 'its tab was closed.')
  group.lose(0, 'its tab crashed.')
  group.done(second, failed(1, 'graph.misuse', 'the run has ended'))
  await vi.advanceTimersByTimeAsync(1000)
  await expect(group.finished).rejects.toThrow(
    /^rank 0: its tab crashed\. No other rank is left\.$/,
  )
  expect(received).toEqual(['rank 1: its tab crashed.', 'the new tab: its tab was closed.'])
})

/** An elastic run of three ranks, `a`, `b` and `c` in their room, and what it reports. */
function threeRanks() {
  const received: string[] = []
  const group = new TabGroup({
    worldSize: 3,
    timeoutMs: 60_000,
    onEvent: ignore,
    onLost: ignore,
    onGone: (tab) => received.push(`gone ${tab}`),
    onUndecided: (tab, text) => received.push(text ?? `${tab} may continue`),
    onStepsLost: (text) => received.push(text),
  })
  for (const [tab, id] of ['a', 'b', 'c'].entries()) {
    group.isMember(tab, id)
    group.event(tab, begun(tab))
  }
  const waits = (missing: readonly string[] | null, hadMore = false) =>
    group.event(2, { event: 'undecided', missing, hadMore, step: 8, rank: 2 })
  return { group, received, waits }
}

test('a rank may continue when all that it waits for are gone, in any order of the reports', () => {
  const { group, received, waits } = threeRanks()
  for (const tab of [0, 1]) group.lose(tab, 'its tab crashed.')
  waits(['a.1', 'b.1'])
  expect(received.splice(0)).toEqual(['gone 0', 'gone 1', '2 may continue'])
  waits(null)
  group.add()
  const later = threeRanks()
  later.group.lose(0, 'its tab crashed.')
  later.waits(['a.1', 'b.1'], true)
  const [, text] = later.received.splice(0)
  expect(text).toBe(
    'rank 2 waits for rank 1, which had newer steps: here the newest is step 8. End with Ctrl-C, and continue from a checkpoint (--resume).',
  )
  later.group.lose(1, 'its tab crashed.')
  expect(later.received).toEqual([
    'gone 1',
    'The ranks that are gone had newer steps, which are lost: the newest is step 8.',
    '2 may continue',
  ])
  for (const one of [group, later.group]) one.stop()
})

test.each([
  ['that is alive', ['a.1', 'b.1'], 'rank 1, which may train on without it'],
  ['that nobody knows', ['a.1', 'x.1'], 'other ranks, which may train on without it'],
  ['without a name', [], 'other ranks, which may train on without it'],
])('a rank that waits for one %s does not receive a continue', (_, missing, who) => {
  const { group, received, waits } = threeRanks()
  group.lose(0, 'its tab crashed.')
  waits(missing)
  expect(received).toEqual(['gone 0', expect.stringContaining(`rank 2 waits for ${who}.`)])
  waits(null)
  group.lose(1, 'its tab crashed.')
  expect(received).toHaveLength(3)
  group.stop()
})

test('where an elastic run does not continue, the tabs that it lost are named first', async () => {
  const group = new TabGroup({
    worldSize: 4,
    timeoutMs: 4000,
    onEvent: ignore,
    onLost: ignore,
  })
  for (const tab of [0, 1, 2, 3]) group.event(tab, begun(tab))
  group.lose(3, 'its tab crashed.')
  group.event(0, joined(0))
  for (const tab of [1, 2]) group.lose(tab, 'its tab crashed.')
  group.event(group.add(), begun(3))
  await vi.advanceTimersByTimeAsync(5100)
  await expect(group.finished).rejects.toThrow(
    'rank 1, rank 2: lost, and within 4 s the run has not continued with rank 0 (load), the new tab (load).',
  )
})

test('tabs that end after the run are not reported', async () => {
  const received: string[] = []
  const onLost = (text: string) => received.push(text)
  const group = new TabGroup({ worldSize: 1, timeoutMs: 60_000, onEvent: ignore, onLost })
  group.event(0, begun(0))
  const joiner = group.add()
  group.done(0, done(0))
  expect(await group.finished).toHaveLength(1)
  group.lose(joiner, 'its tab was closed.')
  expect(received).toEqual([])
})

test.each([
  ['a run that is not elastic', undefined, [begun(0), begun(1)]],
  ['a run that has not begun', ignore, []],
  ['the last tab', ignore, [undefined, begun(1)]],
])('the loss of a tab ends %s', async (_, onLost, words) => {
  const group = new TabGroup({
    worldSize: 2,
    timeoutMs: 60_000,
    onEvent: ignore,
    ...(onLost && { onLost }),
  })
  for (const [tab, word] of words.entries()) if (word) group.event(tab, word)
  group.lose(1, 'its tab crashed.')
  await vi.advanceTimersByTimeAsync(1000)
  await expect(group.finished).rejects.toMatchObject({
    code: 'worker.dead',
    message: expect.stringContaining('its tab crashed.'),
  })
})
