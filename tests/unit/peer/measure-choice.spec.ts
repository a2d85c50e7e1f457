import { expect, test } from 'vitest'
import { chooseAlgorithm } from '../../../src/peer/algorithm-choice.ts'
import { measureChoice } from '../../../src/peer/measure-choice.ts'
import { bytes, elements, reduced, reducedByMachines } from '../../support/collective-reference.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing } from '../../support/memory-ring.ts'
import { seededRandom, VirtualEnv } from '../../support/virtual-env.ts'

/** Links on which a message takes `hopMs`, and so many bytes are under way at once. */
function links(hopMs: number, bytesInFlight: number) {
  return () => ({
    delayMs: () => hopMs,
    maxMessageBytes: 4096,
    highWaterBytes: bytesInFlight,
  })
}

test('far links take what has few hops, and all ranks choose alike', async () => {
  const env = new VirtualEnv(1)
  // No size is slow by itself: only hops cost.
  const groups = memoryMesh(env, 5, links(20, 2 ** 30))
  const choices = await env.until(
    Promise.all(groups.map((group) => measureChoice(group, env))),
    60_000,
  )
  for (const choice of choices) expect(choice).toEqual(choices[0])
  expect(choices[0]!.oneShotBytes).toBeGreaterThanOrEqual(4096)
  expect(choices[0]!.directBytes).toBeGreaterThanOrEqual(choices[0]!.oneShotBytes)
})

test('where bytes cost and hops do not, one shot is not taken', async () => {
  const env = new VirtualEnv(2)
  // 4 KB a millisecond: one shot sends twice the bytes that the others do.
  const groups = memoryMesh(env, 4, links(1, 4096))
  const [choice] = await env.until(
    Promise.all(groups.map((group) => measureChoice(group, env))),
    60_000,
  )
  expect(choice!.oneShotBytes).toBeLessThan(64 * 1024)
  expect(groups.map((group) => group.choice)).toEqual(groups.map(() => choice))
})

/** Two machines of three ranks; between them a message takes long, and few bytes are under way. */
const machines = [0, 0, 0, 1, 1, 1]
const nearAndFar = (first: number, second: number) =>
  machines[first] === machines[second] ? links(0.05, 2 ** 30)() : links(5, 16_384)()

test('where machines are far from each other, large buffers go inside them first, and a record repeats that', async () => {
  const env = new VirtualEnv(4)
  const size = machines.length
  const groups = memoryMesh(env, size, nearAndFar, { machines })
  const all = await env.until(Promise.all(groups.map((group) => measureChoice(group, env))), 60_000)
  for (const one of all) expect(one).toEqual(all[0])
  const choice = all[0]!
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

test('within one machine, or one rank on each, nothing goes inside machines first', async () => {
  for (const one of [
    [0, 0, 0],
    [0, 1, 2],
  ]) {
    const env = new VirtualEnv(5)
    const groups = memoryMesh(env, 3, links(1, 4096), { machines: one })
    const [choice] = await env.until(
      Promise.all(groups.map((group) => measureChoice(group, env))),
      60_000,
    )
    expect(Object.keys(choice!)).toEqual(['oneShotBytes', 'directBytes'])
  }
})

test('a ring has nothing to choose, and one rank neither', async () => {
  const env = new VirtualEnv(3)
  const { groups } = memoryRing(env, 5)
  const before = groups[0]!.choice
  const all = await env.until(Promise.all(groups.map((group) => measureChoice(group, env))))
  expect(all[0]).toBe(before)
  expect(groups[0]!.stats().payloadBytesSent).toBe(0)
  expect(await measureChoice(memoryMesh(env, 1)[0]!, env)).toBe(before)
})
