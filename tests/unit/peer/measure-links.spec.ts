import { expect, test } from 'vitest'
import { bucketCapMbFor } from '../../../src/ddp/data-parallel/bucket-size.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { readConditions, takeConditions } from '../../../src/ddp/data-parallel/run-conditions.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { chooseAlgorithm } from '../../../src/peer/algorithms/algorithm-choice.ts'
import { measureLinks } from '../../../src/peer/group/measure-links.ts'
import { seededRandom, VirtualEnv } from '../../../src/util/virtual-env.ts'
import { bytes, elements, reduced, reducedByMachines } from '../../support/collective-reference.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing } from '../../support/memory-ring.ts'

/** Links on which a message takes `hopMs`, and at most `bytesInFlight` are under way. */
function links(hopMs: number | (() => number), bytesInFlight: number) {
  return () => ({
    delayMs: typeof hopMs === 'number' ? () => hopMs : hopMs,
    maxMessageBytes: 4096,
    highWaterBytes: bytesInFlight,
  })
}

test('measureLinks chooses few hops when links are far, the same on all ranks', async () => {
  const env = new VirtualEnv(1)
  // No size is slow: only hops cost.
  const groups = memoryMesh(env, 5, links(20, 2 ** 30))
  const all = await env.until(Promise.all(groups.map((group) => measureLinks(group))), 60_000)
  for (const one of all) expect(one).toEqual(all[0])
  const { choice } = all[0]!
  expect(choice.oneShotMaxBytes).toBeGreaterThanOrEqual(4096)
  expect(choice.directMaxBytes).toBeGreaterThanOrEqual(choice.oneShotMaxBytes)
  expect(groups.map((group) => group.choice)).toEqual(groups.map(() => choice))
})

test('measureLinks does not choose one shot when bytes cost and hops do not', async () => {
  const env = new VirtualEnv(2)
  // 4 KB a millisecond: one shot sends twice the bytes that the others do.
  const groups = memoryMesh(env, 4, links(1, 4096))
  const [one] = await env.until(Promise.all(groups.map((group) => measureLinks(group))), 60_000)
  expect(one!.choice.oneShotMaxBytes).toBeLessThan(64 * 1024)
  // What a ring sends over one link in a millisecond; its hops wait for one another.
  expect(one!.bytesPerMs).toBeGreaterThan(1024)
  expect(one!.bytesPerMs).toBeLessThanOrEqual(4096)
})

test('in a ring only the rate is measured, and for one rank nothing', async () => {
  const env = new VirtualEnv(3)
  const { groups } = memoryRing(env, 5, links(1, 4096))
  const before = groups[0]!.choice
  const all = await env.until(Promise.all(groups.map((group) => measureLinks(group))), 60_000)
  for (const one of all) expect(one).toEqual({ choice: before, bytesPerMs: all[0]!.bytesPerMs })
  expect(all[0]!.bytesPerMs).toBeGreaterThan(1024)
  const [alone] = memoryMesh(env, 1)
  expect(await measureLinks(alone!)).toEqual({ choice: before, bytesPerMs: undefined })
  expect(alone!.stats().payloadBytesSent).toBe(0)
})

test('slow links are not kept busy: one round of each size, none beyond what is slow', async () => {
  const env = new VirtualEnv(4)
  // 64 KB a second.
  const groups = memoryMesh(env, 3, links(64, 4096))
  const [one] = await env.until(Promise.all(groups.map((group) => measureLinks(group))), 60_000)
  expect(one!.bytesPerMs).toBeLessThanOrEqual(80)
  expect(groups[0]!.stats().payloadBytesSent).toBeLessThan(400 * 1024)
})

/** The cap that ranks settle without one given, on links whose messages take `hopMs` more or less. */
async function measuredCap(seed: number, hopMs: number): Promise<(number | undefined)[]> {
  const env = new VirtualEnv(seed)
  // A rank's slower or faster moment, drawn for each message.
  const delay = links(() => hopMs * (0.7 + 0.6 * env.chance()), 16_384)
  const groups = memoryMesh(env, 3, delay)
  const models = groups.map(
    (processGroup) => new DistributedDataParallel(new Linear(2, 2), { processGroup }),
  )
  await env.until(Promise.all(models.map(({ ready }) => ready)), 600_000)
  for (const group of groups) group.destroy()
  return models.map(({ bucketCapMb }) => bucketCapMb)
}

test.each([
  [0.4, 1],
  [2, 0.25],
  [9, 1 / 16],
])(
  'messages of 4 KiB that take 0.7 to 1.3 x %d ms give buckets of %d MiB, whatever the seed',
  async (hopMs, expected) => {
    for (let seed = 1; seed <= 12; seed++)
      expect(await measuredCap(seed, hopMs), `seed ${seed}`).toEqual([expected, expected, expected])
  },
)

test('a bucket takes 12 to 48 ms, in steps of 4, from 1/16 to 4 MiB', () => {
  const capFor = (mibPerSecond: number) =>
    bucketCapMbFor({ bytesPerMs: (mibPerSecond * 2 ** 20) / 1000 })
  const caps = [0.1, 1.3, 5.2, 5.3, 20.8, 20.9, 83.3, 83.4, 1000].map(capFor)
  expect(caps).toEqual([1 / 16, 1 / 16, 1 / 16, 0.25, 0.25, 1, 1, 4, 4])
  for (const rate of [1.5, 3, 6, 12, 24, 48, 96, 192, 330]) {
    const ms = (1000 * capFor(rate)) / rate
    expect(ms).toBeGreaterThanOrEqual(12)
    expect(ms).toBeLessThanOrEqual(48)
  }
  expect(bucketCapMbFor({ bytesPerMs: undefined })).toBe(4)
})

/** Two machines of three ranks; between them a message takes long, and few bytes are under way. */
const machines = [0, 0, 0, 1, 1, 1]
const nearAndFar = (first: number, second: number) =>
  machines[first] === machines[second] ? links(0.05, 2 ** 30)() : links(5, 16_384)()

test('where machines are far from each other, large buffers go inside them first, and a record repeats that', async () => {
  const env = new VirtualEnv(4)
  const size = machines.length
  const groups = memoryMesh(env, size, nearAndFar, { machines })
  const all = await env.until(Promise.all(groups.map((group) => measureLinks(group))), 60_000)
  for (const one of all) expect(one).toEqual(all[0])
  const { choice } = all[0]!
  expect(choice.machines).toEqual(machines)
  const layout = { isFullyLinked: true, machines }
  const taken = (sizeBytes: number) => chooseAlgorithm('allReduce', sizeBytes, layout, choice)
  expect(taken(4096)).toBe('oneShot')
  expect(taken(16 * 2 ** 20)).toBe('hierarchical')
  expect(chooseAlgorithm('barrier', 2 ** 30, layout, choice)).toBe('ring')
  const oneMachine = { isFullyLinked: true, machines: [0, 0] }
  expect(chooseAlgorithm('allReduce', 2 ** 24, oneMachine, choice)).toBe('ring')

  // Ranks that lie elsewhere, with the record of those.
  const element = elements.float32!
  const random = seededRandom(1)
  const length = 300_000
  const inputs = machines.map(() =>
    (element.make(length) as Float32Array).map(() => element.draw(random)),
  )
  const later = memoryMesh(env, size)
  for (const group of later) group.choice = JSON.parse(JSON.stringify(choice))
  const total = inputs.map((input) => input.slice())
  await env.until(Promise.all(later.map((group, rank) => group.allReduce(total[rank]!))), 60_000)
  const expected = element.make(length)
  const inRing = element.make(length)
  for (let i = 0; i < length; i++) {
    const owner = Math.floor((i * size) / length)
    expected[i] = reducedByMachines(element, inputs, 'sum', machines, owner, i)
    inRing[i] = reduced(element, inputs, 'sum', owner + 1, i)
  }
  for (const one of total) expect(Buffer.compare(bytes(one), bytes(expected))).toBe(0)
  expect(Buffer.compare(bytes(expected), bytes(inRing)), 'the order matters').not.toBe(0)
})

test('a wrapped model uses the measured algorithms, machines first too, or those of a saved run', async () => {
  const env = new VirtualEnv(5)
  const wrapped = async (more: { machines?: readonly number[] }) => {
    const groups = memoryMesh(env, machines.length, nearAndFar, more)
    const models = groups.map(
      (processGroup) => new DistributedDataParallel(new Linear(8, 8), { processGroup }),
    )
    await env.until(Promise.all(models.map(({ ready }) => ready)), 60_000)
    return models
  }
  const [first, ...others] = await wrapped({ machines })
  const saved = readConditions({ model: first })
  expect(saved.models.model!.hierarchicalMaxBytes).toBeGreaterThan(2 ** 20)
  expect(saved.models.model!.machines).toEqual(machines)
  for (const model of others) expect(readConditions({ model })).toEqual(saved)

  const [later] = await wrapped({})
  expect(readConditions({ model: later }).models.model!.hierarchicalMaxBytes).toBe(0)
  expect(takeConditions(saved, { model: later })).toEqual([])
  expect(readConditions({ model: later })).toEqual(saved)
})

test('within one machine, or one rank on each, nothing goes inside machines first', async () => {
  for (const layout of [
    [0, 0, 0],
    [0, 1, 2],
  ]) {
    const env = new VirtualEnv(5)
    const groups = memoryMesh(env, 3, links(1, 4096), { machines: layout })
    const [one] = await env.until(Promise.all(groups.map((group) => measureLinks(group))), 60_000)
    expect(Object.keys(one!.choice)).toEqual(['oneShotMaxBytes', 'directMaxBytes'])
  }
})
