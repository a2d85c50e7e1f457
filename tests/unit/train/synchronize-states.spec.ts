import { expect, test } from 'vitest'
import { shareBytes } from '../../../src/ddp/committed/share-bytes.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { synchronizeStates } from '../../../src/trainer/loop/run-groups.ts'
import {
  beginning,
  type KeptState,
  KeptStates,
  packState,
} from '../../../src/trainer/saves/kept-states.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { ringOf } from '../../support/process-ring.ts'

/** What a rank without losses brings. */
const own = {
  suspect: 0,
  losses: 0,
  faults: 0,
  wentBackTo: 0,
  hasGiven: false,
  hasOtherRanks: false,
}

// Two ranks that have trained, and a newcomer, on a virtual clock: the state has 2.5 MB.

const words = 600_000

function stateOf(step: number): KeptState {
  const weight = { dtype: 'float32', shape: [words], data: new Float32Array(words).fill(step) }
  return {
    progress: { ...beginning, step },
    model: { weight },
    optimizer: { state: {}, param_groups: [] },
    scaler: undefined,
    log: undefined,
  } as unknown as KeptState
}

async function synchronizeWithNewcomer(bytesPerMs: number) {
  const world = new VirtualEnv(1)
  const groups = memoryMesh(world, 3, (_, second) => ({
    bytesPerMs: second === 2 ? bytesPerMs : 100_000,
    highWaterBytes: 256 * 1024,
  }))
  const received: string[][] = [[], [], []]
  const kept = groups.map(({ rank }) => {
    const states = new KeptStates()
    if (rank < 2) states.add(stateOf(7))
    return states
  })
  const beganMs = world.now()
  const ends = groups.map((group, rank) => {
    const brought = { ...own, hasOtherRanks: rank === 2, ...(rank < 2 && { stepMs: 300 }) }
    return synchronizeStates(group, kept[rank], brought, false, (done, total) =>
      received[rank].push(`${done} of ${total}`),
    ).then(
      ({ step }) => step,
      (error: unknown) => error,
    )
  })
  return { world, groups, received, kept, ends, beganMs }
}

test('the state goes from one rank to a newcomer, and both hear how much of it has gone', async () => {
  const { world, received, kept, ends, groups } = await synchronizeWithNewcomer(10_000)
  expect(await world.until(Promise.all(ends))).toEqual([7, 7, 7])
  const total = Number(received[0].at(-1)!.split(' of ')[1])
  expect(total).toBeGreaterThan(4 * words)
  expect(received[0]).toEqual([2 ** 20, 2 ** 21, total].map((done) => `${done} of ${total}`))
  expect(received[1]).toEqual([])
  expect(groups[1].stats().payloadBytesSent).toBeLessThan(1000)
  expect(received[2]).toEqual(received[0])
  expect(kept[2].newest?.progress.step).toBe(7)
  for (const group of groups) group.destroy()
})

test('in a ring of links the state goes through ranks that have it to one that lacks it', async () => {
  const groups = await ringOf(5)
  const kept = groups.map(({ rank }) => {
    const states = new KeptStates()
    states.add(stateOf(rank === 2 ? 8 : 9))
    return states
  })
  await Promise.all(groups.map((group, rank) => synchronizeStates(group, kept[rank], own, false)))
  expect(kept.map(({ newest }) => newest?.progress.step)).toEqual([9, 9, 9, 9, 9])
  for (const group of groups) group.destroy()
})

test('a newcomer that gets the state too slowly leaves after 4 s, where steps are short', async () => {
  const { world, ends, groups, beganMs } = await synchronizeWithNewcomer(100)
  const late = await world.until(ends[2])
  expect(late).toMatchObject({ code: 'peer.timeout' })
  expect(String(late)).toMatch(
    /the run continues without this tab: \d+ of \d+ bytes of the kept state came within 4 s\. Check the connection/,
  )
  expect(world.now() - beganMs).toBeLessThan(4500)
  groups[2].destroy()
  expect(await world.until(ends[0])).toMatchObject({ code: 'peer.lost' })
  expect(await world.until(ends[1])).toBe(7)
  for (const group of groups) group.destroy()
})

test('a newcomer learns how long it may wait for the data that a person gave; the others do not wait for ever', async () => {
  const world = new VirtualEnv(1)
  const groups = memoryMesh(world, 2, () => ({ bytesPerMs: 100, highWaterBytes: 256 * 1024 }))
  const kept = groups.map(() => new KeptStates())
  kept[0].add({ ...stateOf(7), model: {} } as KeptState)
  const brought = { ...own, stepMs: 300 }
  const settled = await world.until(
    Promise.all(groups.map((group, rank) => synchronizeStates(group, kept[rank], brought, false))),
  )
  expect(settled.map(({ limitMs }) => limitMs)).toEqual([undefined, 4000])
  const given = new Uint8Array(2 ** 20)
  const ends = groups.map((group, rank) =>
    shareBytes(group, {
      root: 0,
      sizeBytes: given.length,
      own: rank === 0 ? given : undefined,
      label: 'the data',
      limitMs: settled[rank].limitMs,
    }).catch((error: unknown) => error),
  )
  expect(String(await world.until(ends[1]))).toMatch(
    /the run continues without this tab: 0 of 1048576 bytes of the data came within 4 s/,
  )
  groups[1].destroy()
  expect(await world.until(ends[0])).toMatchObject({ code: 'peer.lost' })
  for (const group of groups) group.destroy()
})

const label = 'the kept state'
const textOf = (received: object) => new TextEncoder().encode(JSON.stringify(received))

/** How a newcomer ends, where rank 0 sends `received` and then `state`, or what it announces as one of `sizeBytes`. */
async function synchronizeWithLiar(
  received: object,
  state?: Uint8Array<ArrayBuffer>,
  sizeBytes = state?.length,
) {
  const groups = await ringOf(2)
  const kept = new KeptStates()
  const end = synchronizeStates(groups[1]!, kept, own, false).catch((error: unknown) => error)
  await groups[0]!.allGatherBytes(textOf(received), { label: 'what the ranks have kept' })
  if (sizeBytes !== undefined) {
    const pair = (await groups[0]!.newGroup([0, 1])) as ProcessGroup
    await pair.allGatherU32(Uint32Array.of(sizeBytes), { label })
    if (state) await shareBytes(pair, { root: 0, sizeBytes, own: state, label })
  }
  const error = await end
  for (const group of groups) group.destroy()
  return { error, kept }
}

test.each([2 ** 32 - 1, 2 ** 30 + 1])(
  'a rank that announces a state of %s bytes is named, and nobody makes room for it',
  async (sizeBytes) => {
    const held = [{ step: 7, hash: '' }]
    const { error } = await synchronizeWithLiar({ ...own, held }, undefined, sizeBytes)
    expect(error).toMatchObject({
      code: 'peer.protocol',
      message: expect.stringContaining(
        `the kept state: each rank may send at most 1073741824 bytes, but rank 0 announced ${sizeBytes}`,
      ),
    })
  },
)

test('a rank that sends the state of another step than it announced is named', async () => {
  const held = [{ step: 7, hash: '' }]
  const { error, kept } = await synchronizeWithLiar({ ...own, held }, packState(stateOf(8)))
  expect(error).toMatchObject({
    code: 'peer.protocol',
    message: expect.stringContaining('rank 0 must send that of step 7, but sent one of step 8'),
  })
  expect(kept.newest).toBeUndefined()
})

test.each([
  ['how long its steps take', { stepMs: 1e12 }],
  ['more than it keeps', { more: 1 }],
  ['the hash of a state', { held: [{ step: 7, hash: 'a'.repeat(17) }] }],
])('a rank that sends too much about %s is named', async (_, more) => {
  expect((await synchronizeWithLiar({ ...own, held: [], ...more })).error).toMatchObject({
    code: 'peer.protocol',
    message: expect.stringContaining('what the ranks have kept: rank 0 sent'),
  })
})
