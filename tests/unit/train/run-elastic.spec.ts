import { afterEach, beforeEach, expect, test } from 'vitest'
import { type ElasticRun, runElastic } from '../../../src/ddp/elastic/run-elastic.ts'
import { RunMemory } from '../../../src/ddp/elastic/run-memory.ts'
import {
  destroyProcessGroup,
  getProcessGroup,
  isInitialized,
} from '../../../src/distributed/group/default-group.ts'
import {
  type GroupEnds,
  groupEndsName,
  nextGroupName,
} from '../../../src/distributed/launcher/next-group.ts'
import { env } from '../../../src/distributed/rendezvous/env.ts'
import { randomLayers } from '../../../src/graph/trace/random.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { getRngState, manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { getPeftModel } from '../../../src/nn/lora/peft-model.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { GpuError, PeerError } from '../../../src/util/errors.ts'
import { injectedName } from '../../../src/util/injected.ts'
import { factorsOf } from '../../support/golden-lora.ts'
import { destroyRings, ringOf } from '../../support/process-ring.ts'

/** What a launcher puts into the page, played by a test. */
const page = globalThis as Record<string, unknown>
let asked: number
let isDone: number
/** Why the rank has left each group before it asked for the next. */
let left: (string | undefined)[]

beforeEach(() => {
  asked = 0
  page[injectedName] = { variables: {}, args: [] }
  isDone = 0
  left = []
  page[nextGroupName] = async (words?: true | string) => {
    if (words === true) isDone++
    else left.push(words)
    return words === true ? '' : JSON.stringify({ RANK: '0', RESTART_COUNT: String(asked++) })
  }
})
afterEach(async () => {
  for (const name of [injectedName, nextGroupName, groupEndsName]) delete page[name]
  await destroyProcessGroup()
  destroyRings()
})

const endGroup = (words: GroupEnds) => (page[groupEndsName] as (words: GroupEnds) => void)(words)
const alone = { rank: 0, worldSize: 1, links: new Map() }
/** `alone` needs no other rank and no launcher's room. */
const run = (train: (run: ElasticRun) => Promise<void>) => runElastic(train, alone as object)

test('runElastic calls the function again with the newest commit once a rank joins', async () => {
  const from: (number | undefined)[] = []
  await run(async ({ restore, commit }) => {
    const model = new Linear(2, 2)
    const { step } = (await restore<{ step: number }>({ model })) ?? {}
    from.push(step)
    expect(env.RESTART_COUNT).toBe(String(from.length - 1))
    if (step === 2) return
    await commit({ model, step: 1 })
    endGroup({ group: 0, kind: 'planned', why: 'ranks join' })
    await commit({ model, step: 2 })
    throw new Error('commit must not return')
  })
  expect(from).toEqual([undefined, 2])
  expect(isDone).toBe(1)
  expect(isInitialized()).toBe(false)
})

test('runElastic restores the parameters and the random state of the commit', async () => {
  const numbersOf = async (model: Linear) => [
    ...((await model.stateDict()).weight.data as Float32Array),
  ]
  const seen: number[][] = []
  await run(async ({ restore, commit }) => {
    manualSeed(3 + seen.length)
    const model = new Linear(2, 2)
    const restored = await restore({ model })
    if (!restored) await commit({ model })
    seen.push([...(await numbersOf(model)), ...(await numbersOf(new Linear(2, 1)))])
    if (!restored) throw new PeerError('peer.lost', 'rank 1 is lost')
  })
  expect(seen[1]).toEqual(seen[0])
})

test('runElastic keeps the adapter of a model alone, and restores it where the base is the same', async () => {
  const seen: number[][] = []
  await run(async ({ restore, commit }) => {
    manualSeed(3)
    const model = getPeftModel(new Sequential(new Linear(2, 2)), { targetModules: ['0'] })
    const restored = await restore({ model })
    const [, b] = factorsOf(model)[1]
    seen.push([...(await b.read())])
    if (restored) return
    b.assign(new Float32Array(b.count).fill(7))
    await commit({ model })
    throw new PeerError('peer.lost', 'rank 1 is lost')
  })
  expect(seen).toEqual([new Array(16).fill(0), new Array(16).fill(7)])
})

test('runElastic ends a wait in the group as soon as the launcher says that a rank is lost', async () => {
  let calls = 0
  await run(async () => {
    if (++calls > 1) return
    const group = getProcessGroup()
    endGroup({ group: 0, kind: 'lost', why: 'rank 1: its tab crashed.' })
    expect(group.error?.message).toContain('rank 1: its tab crashed.')
    await group.barrier()
  })
  expect(calls).toBe(2)
  // The launcher knows.
  expect(left).toEqual([undefined, undefined])
})

test('runElastic ignores what is said of an earlier group', async () => {
  let calls = 0
  await run(async ({ commit }) => {
    if (++calls === 1) throw new PeerError('peer.lost', 'rank 1 is lost')
    endGroup({ group: 0, kind: 'lost', why: 'rank 1: its tab crashed.' })
    endGroup({ group: 0, kind: 'planned', why: 'ranks join' })
    await commit({ step: 1 })
  })
  expect(calls).toBe(2)
})

test('runElastic hears what is said before the page knows its group', async () => {
  let calls = 0
  page[nextGroupName] = async (words?: true | string) => {
    if (words === true) return ''
    if (asked === 0) endGroup({ group: 0, kind: 'planned', why: 'ranks join' })
    return JSON.stringify({ RESTART_COUNT: String(asked++) })
  }
  await run(async ({ commit }) => {
    if (++calls === 1) await commit({ step: 1 })
  })
  expect(calls).toBe(2)
})

test('runElastic trains on in another group when the device is lost', async () => {
  let calls = 0
  await run(async () => {
    if (++calls === 1) throw new GpuError('gpu.lost', 'device: lost')
  })
  expect(calls).toBe(2)
  expect(left).toEqual([undefined, 'device: lost'])
})

test('runElastic begins random numbers and layers in each call as before the first', async () => {
  manualSeed(5)
  new Dropout(0.5)
  const seen: unknown[] = []
  await run(async () => {
    seen.push([getRngState(), randomLayers()])
    new Linear(2, 2)
    new Dropout(0.5)
    if (seen.length === 1) throw new PeerError('peer.lost', 'rank 1 is lost')
  })
  expect(seen[1]).toEqual(seen[0])
  expect(randomLayers()).toBe(2)
})

test('runElastic lets its function end the group', async () => {
  await run(() => destroyProcessGroup())
  expect(isDone).toBe(1)
})

test('runElastic refuses a second run under an elastic launcher', async () => {
  await run(async () => undefined)
  await expect(run(async () => undefined)).rejects.toThrow('runElastic: it can be called only once')
})

test('runElastic gives up a group that fails again and again after it commits what it has restored', async () => {
  const failing = run(async ({ restore, commit }) => {
    await restore()
    await commit({ step: 1 })
    throw new PeerError('peer.mismatch', 'rank 1 differs')
  })
  await expect(failing).rejects.toThrow('rank 1 differs')
  // The first commit was progress.
  expect(asked).toBe(3)
})

test('runElastic gives up a group that others leave again and again', async () => {
  const failing = run(async () => {
    endGroup({ group: asked - 1, kind: 'left', why: 'rank 1 has left the group' })
    await getProcessGroup().barrier()
  })
  await expect(failing).rejects.toThrow('rank 1 has left the group')
  expect(asked).toBe(3)
})

test("runElastic throws the function's own error", async () => {
  const error = new RangeError('no batch')
  await expect(run(() => Promise.reject(error))).rejects.toBe(error)
  expect(asked).toBe(1)
})

test('runElastic gives up a group that fails again and again without a commit', async () => {
  const failing = run(() => Promise.reject(new PeerError('peer.protocol', 'rank 1 differs')))
  await expect(failing).rejects.toThrow('rank 1 differs')
  expect(asked).toBe(3)
})

test('runElastic calls the function once without an elastic launcher', async () => {
  delete page[nextGroupName]
  const error = new PeerError('peer.lost', 'rank 1 is lost')
  let calls = 0
  await run(async ({ restore, commit }) => {
    calls++
    expect(await restore()).toBeUndefined()
    await commit({ step: 1 })
  })
  await expect(run(() => Promise.reject(error))).rejects.toBe(error)
  expect(calls).toBe(1)
})

test('env says that an elastic run sets variables in runElastic', () => {
  expect(() => env.RANK).toThrow('Read it in the function that you pass to runElastic')
})

test('RunMemory brings the newest commit of any rank to all', async () => {
  const groups = await ringOf(3)
  const memories = groups.map(() => new RunMemory())
  const [a, b, c] = memories
  const all = <T>(act: (memory: RunMemory, rank: number) => Promise<T>) =>
    Promise.all(memories.map(act))
  await all((memory, rank) => memory.commit(groups[rank], { step: 1 }, false))
  // Ranks 1 and 2 have gone on to another commit.
  const pair = await ringOf(2)
  await Promise.all([b.commit(pair[0], { step: 2 }, false), c.commit(pair[1], { step: 2 }, false)])
  const restored = await all((memory, rank) => memory.restore(groups[rank], {}))
  expect(restored).toEqual([{ step: 2 }, { step: 2 }, { step: 2 }])
  expect(await a.restore((await ringOf(1))[0], {})).toEqual({ step: 2 })
})

test('RunMemory ends the group on all ranks at the same commit', async () => {
  const groups = await ringOf(2)
  const ends = await Promise.all(
    groups.map((group, rank) => new RunMemory().commit(group, { step: 1 }, rank === 1)),
  )
  expect(ends.map(({ isEnding }) => isEnding)).toEqual([true, true])
})

test('RunMemory refuses a rank that says what is no number of commits', async () => {
  const groups = await ringOf(2)
  const liar = groups[1].allGatherBytes(new TextEncoder().encode('-1'), {
    label: 'the newest commit',
  })
  await expect(new RunMemory().restore(groups[0], {})).rejects.toThrow(/rank 1 sent 2 bytes/)
  await liar
})
