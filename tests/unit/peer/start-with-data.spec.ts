import { describe, expect, test } from 'vitest'
import type { Algorithm } from '../../../src/peer/algorithms/operations.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { outcomes } from '../../support/memory-ring.ts'

// START and a collective's first data may be one message. What a rank may do with them is what it may do with two.

const sentBy = (group: ProcessGroup) => {
  const links = [...group.stats().links.values()]
  return {
    data: links.reduce((sum, { dataFramesSent }) => sum + dataFramesSent, 0),
    others: links.reduce((sum, { controlFramesSent }) => sum + controlFramesSent, 0),
  }
}

async function open(size: number, more: Parameters<typeof memoryMesh>[3] = {}) {
  const env = new VirtualEnv(1)
  const groups = memoryMesh(env, size, () => ({}), more)
  await env.until(Promise.all(groups.map((group) => group.ready())))
  return { env, groups }
}

describe('messages that each of 3 ranks sends', () => {
  test.each<[Algorithm, number, { data: number; others: number }]>([
    // One to each of the others.
    ['oneShot', 4096, { data: 2, others: 0 }],
    ['direct', 4096, { data: 4, others: 0 }],
    // The one before in the ring gets START, and no data.
    ['ring', 4096, { data: 4, others: 1 }],
    // Long data do not hold START up.
    ['oneShot', 32_768, { data: 2, others: 2 }],
  ])('%s of %i bytes', async (algorithm, sizeBytes, expected) => {
    const { env, groups } = await open(3)
    const before = groups.map(sentBy)
    const all = groups.map(() => new Float32Array(sizeBytes / 4).fill(1))
    await env.until(
      Promise.all(groups.map((group, rank) => group.allReduce(all[rank]!, { algorithm }))),
    )
    for (const buffer of all) expect([buffer[0], buffer.at(-1)]).toEqual([3, 3])
    const after = groups.map(sentBy)
    expect(
      after.map(({ data, others }, rank) => ({
        data: data - before[rank]!.data,
        others: others - before[rank]!.others,
      })),
    ).toEqual(groups.map(() => expected))
  })
})

describe('calls that differ', () => {
  // The other has sent its data before this rank begins, or begins first and is sent them.
  test.each([
    [0, 1],
    [1, 0],
  ])('rank %i first: no result uses the data, and both ranks are named', async (first, second) => {
    const { env, groups } = await open(2)
    const buffers = [new Float32Array(8).fill(1), new Float32Array(9).fill(2)]
    const start = (rank: number) =>
      groups[rank]!.allReduce(buffers[rank]!, { algorithm: 'oneShot' })
    const early = start(first!)
    await env.advance(50)
    const errors = await env.until(outcomes([early, start(second!)]))
    for (const error of errors)
      expect(error?.message).toMatch(
        /ranks disagree: rank [01] runs allReduce of [89] .*rank [01] runs allReduce of [89] /,
      )
    expect(buffers.map((buffer) => new Set(buffer))).toEqual([new Set([1]), new Set([2])])
  })

  test('a sender rejects when the receiver expects another length, although its data have gone', async () => {
    const { env, groups } = await open(2)
    const taken = new Float32Array(9)
    const receiving = groups[1]!.recv(taken, 0)
    await env.advance(50)
    const sending = groups[0]!.send(new Float32Array(8).fill(7), 1)
    const errors = await env.until(outcomes([sending, receiving]))
    for (const error of errors) expect(error?.message).toMatch(/ranks disagree/)
    expect(new Set(taken)).toEqual(new Set([0]))
  })

  test('ranks that disagree about machines', async () => {
    const { env, groups } = await open(3)
    groups.forEach((group, rank) => {
      group.choice = { ...group.choice, machines: rank === 2 ? [0, 1, 1] : [0, 0, 1] }
    })
    const errors = await env.until(
      outcomes(
        groups.map((group) => group.allReduce(new Float32Array(12), { algorithm: 'hierarchical' })),
      ),
    )
    for (const error of errors)
      expect(error?.message).toMatch(
        /\(hierarchical, machines \w+\).*\(hierarchical, machines \w+\)/,
      )
  })

  test('hierarchical without machines is refused', async () => {
    const { groups } = await open(3)
    await expect(
      groups[0]!.allReduce(new Float32Array(1), { algorithm: 'hierarchical' }),
    ).rejects.toThrow('needs the machines of all 3 ranks, got')
  })
})
