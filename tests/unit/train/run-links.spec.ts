import { expect, test } from 'vitest'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { type LinkSources, RunLinks } from '../../../src/trainer/loop/run-links.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

const sentBytes = (groups: readonly ProcessGroup[]) =>
  Math.max(...groups.map((group) => group.stats().payloadBytesSent))

/** What all ranks settle, and how much one has sent for it at most. */
async function settle(
  env: VirtualEnv,
  ranks: readonly RunLinks[],
  isQuick: boolean,
  machines?: readonly number[],
  more: LinkSources = { isQuick },
) {
  const groups = memoryMesh(env, ranks.length, undefined, machines && { machines })
  const settling = ranks.map((links, rank) => links.settle(groups[rank]!, more))
  const [first, ...others] = await env.until(Promise.all(settling), 60_000)
  for (const one of others) expect(one).toEqual(first)
  expect(groups.map(({ choice }) => choice)).toEqual(groups.map(() => first!.choice))
  return { links: first!, sentBytes: sentBytes(groups) }
}

test('an exact run does not measure when its ranks change, and uses what any rank has measured', async () => {
  const env = new VirtualEnv(1)
  const [a, b, c, newcomer] = Array.from({ length: 4 }, () => new RunLinks())
  const first = await settle(env, [a!, b!, c!], false)
  expect(first.links.bytesPerMs).toBeGreaterThan(0)
  expect(first.sentBytes).toBeGreaterThan(64 * 1024)

  const two = await settle(env, [a!, b!], true)
  expect(two.links.bytesPerMs).toBeUndefined()
  expect(two.sentBytes).toBeLessThan(1024)
  expect(a!.newest).toBeUndefined()

  const three = await settle(env, [newcomer!, b!, a!], true)
  expect(three.links).toEqual(first.links)
  expect(three.sentBytes).toBeLessThan(2048)
  expect(newcomer!.newest).toEqual(first.links)
})

test('ranks that share machines measure when they change, since sums inside a machine first pay off', async () => {
  const env = new VirtualEnv(2)
  const ranks = Array.from({ length: 3 }, () => new RunLinks())
  const far = await settle(env, ranks, true, [0, 0, 1])
  expect(far.links.bytesPerMs).toBeGreaterThan(0)
  const other = await settle(env, ranks, true, [0, 1, 1])
  expect(other.sentBytes).toBeGreaterThan(64 * 1024)
  const again = await settle(env, ranks, true, [0, 0, 1])
  expect(again.links).toEqual(far.links)
  expect(again.sentBytes).toBeLessThan(2048)
})

test("other runs measure again after forget, and a checkpoint's links do not count as measured", async () => {
  const env = new VirtualEnv(3)
  const ranks = Array.from({ length: 2 }, () => new RunLinks())
  await settle(env, ranks, false)
  for (const links of ranks) links.forget()
  expect((await settle(env, ranks, false)).sentBytes).toBeGreaterThan(64 * 1024)

  for (const links of ranks) links.forget()
  const saved = { choice: { oneShotMaxBytes: 0, directMaxBytes: 4096 }, bytesPerMs: 100 }
  const resumed = await settle(env, ranks, false, undefined, { isQuick: false, saved })
  expect(resumed.links).toEqual(saved)
  expect(ranks.map(({ newest }) => newest)).toEqual([undefined, undefined])
})

const choice = '{"oneShotMaxBytes":0,"directMaxBytes":0}'
test.each([
  [
    'nested lists',
    `{"isQuick":true,"before":{"choice":${choice},"x":${'['.repeat(2e4)}${']'.repeat(2e4)}}}`,
  ],
  [
    'more of a choice',
    `{"isQuick":true,"now":{"choice":{"oneShotMaxBytes":0,"directMaxBytes":0,"x":1}}}`,
  ],
  ['more than its links', `{"isQuick":true,"x":1}`],
  [
    'the machines of other ranks',
    `{"isQuick":true,"now":{"choice":{"oneShotMaxBytes":0,"directMaxBytes":0,"machines":[0,0,1]}}}`,
  ],
])('a rank that sends %s is named', async (_, text) => {
  const env = new VirtualEnv(4)
  const groups = memoryMesh(env, 2)
  const end = new RunLinks().settle(groups[0]!, { isQuick: true }).catch((error: unknown) => error)
  const label = 'the measured links'
  await env.until(groups[1]!.allGatherBytes(new TextEncoder().encode(text), { label }))
  expect(await env.until(end)).toMatchObject({
    code: 'peer.protocol',
    message: expect.stringContaining('the measured links: rank 1 sent'),
  })
  for (const group of groups) group.destroy()
})

test('links that an earlier run measured on other machines are not used', async () => {
  const env = new VirtualEnv(5)
  const ranks = Array.from({ length: 2 }, () => new RunLinks())
  const machines = [0, 0, 1]
  const before = { choice: { oneShotMaxBytes: 0, directMaxBytes: 0, machines }, bytesPerMs: 1 }
  const { links } = await settle(env, ranks, false, undefined, { isQuick: false, before })
  expect(links.bytesPerMs).toBeGreaterThan(1)
})
