import { expect, test } from 'vitest'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { FaultyLink, type LinkFaults } from '../../../src/peer/link/faulty-link.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { outcomes } from '../../support/memory-ring.ts'

/** Two ranks all-reduce; what rank 1 sends goes through the faults. */
async function reduceWith(faults: Partial<LinkFaults>) {
  const env = new VirtualEnv(5)
  const [first, second] = memoryPair(env)
  const faulty = new FaultyLink(second, { drop: 0, delayMs: 0, isStalled: false, ...faults }, env)
  const groups = [first, faulty].map((link: Link, rank) => {
    const links = new Map([[1 - rank, link]])
    return new ProcessGroup({ rank, size: 2, epoch: 1, links, env, config: { deadlineMs: 5000 } })
  })
  const buffers = [1, 2].map((value) => new Float32Array(30_000).fill(value))
  const began = env.now()
  const errors = await env.until(
    outcomes(groups.map((group, rank) => group.allReduce(buffers[rank]))),
  )
  return { errors, buffers, faulty, tookMs: env.now() - began }
}

test('FaultyLink passes all messages on when it has no faults', async () => {
  const { errors, buffers, faulty } = await reduceWith({})
  expect(errors).toEqual([undefined, undefined])
  expect(buffers.map((buffer) => buffer[29_999])).toEqual([3, 3])
  expect(faulty.lost).toBe(0)
})

test('collectives have the right sums when messages are late', async () => {
  const { errors, buffers, tookMs } = await reduceWith({ delayMs: 40 })
  expect(errors).toEqual([undefined, undefined])
  expect(buffers.map((buffer) => buffer[0])).toEqual([3, 3])
  expect(tookMs).toBeGreaterThanOrEqual(80)
})

test.each([{ isStalled: true }, { drop: 1 }, { drop: 0.5 }])(
  'both ranks reject under %o, and messages were lost',
  async (faults) => {
    const { errors, faulty } = await reduceWith(faults)
    expect(errors.every((error) => error instanceof Error)).toBe(true)
    expect(faulty.lost).toBeGreaterThan(0)
  },
)
