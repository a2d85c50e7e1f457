import { expect, test } from 'vitest'
import { measureChoice } from '../../../src/peer/measure-choice.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing } from '../../support/memory-ring.ts'
import { VirtualEnv } from '../../support/virtual-env.ts'

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

test('a ring has nothing to choose, and one rank neither', async () => {
  const env = new VirtualEnv(3)
  const { groups } = memoryRing(env, 5)
  const before = groups[0]!.choice
  const all = await env.until(Promise.all(groups.map((group) => measureChoice(group, env))))
  expect(all[0]).toBe(before)
  expect(groups[0]!.stats().payloadBytesSent).toBe(0)
  expect(await measureChoice(memoryMesh(env, 1)[0]!, env)).toBe(before)
})
