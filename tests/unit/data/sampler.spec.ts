import { afterEach, describe, expect, test } from 'vitest'
import { DistributedSampler, replicaIndices } from '../../../src/data/sampler.ts'
import {
  destroyProcessGroup,
  initProcessGroup,
} from '../../../src/distributed/group/process-group.ts'
import golden from '../../golden/sampler.json' with { type: 'json' }

const drawn = { length: 10 }
const ranks = (count: number) => Array.from({ length: count }, (_, rank) => rank)

test.each(golden.cases)(
  'as PyTorch: $order over $numReplicas ranks, dropLast $dropLast, shuffle $shuffle',
  ({ order, numReplicas, dropLast, shuffle, indices, length, totalSize }) => {
    for (const rank of ranks(numReplicas)) {
      expect([...replicaIndices(order, numReplicas, rank, dropLast)]).toEqual(indices[rank])
      const sampler = new DistributedSampler(order, { numReplicas, rank, dropLast, shuffle })
      expect([sampler.length, sampler.totalSize]).toEqual([length, totalSize])
      if (!shuffle) expect([...sampler]).toEqual(indices[rank])
    }
  },
)

describe('with shuffle', () => {
  const dataset = { length: 1001 }
  const all = (epoch: number, dropLast: boolean) =>
    ranks(4).flatMap((rank) => {
      const sampler = new DistributedSampler(dataset, { numReplicas: 4, rank, seed: 9, dropLast })
      sampler.setEpoch(epoch)
      expect(sampler.epoch).toBe(epoch)
      return [...sampler]
    })

  test('ranks together see every sample, the padding being repeats', () => {
    const seen = all(0, false)
    expect(seen.length).toBe(1004)
    expect(new Set(seen).size).toBe(1001)
  })

  test('with dropLast no sample comes twice', () => {
    const seen = all(0, true)
    expect(seen.length).toBe(1000)
    expect(new Set(seen).size).toBe(1000)
  })

  test('the epoch decides the order', () => {
    expect(all(1, false)).toEqual(all(1, false))
    expect(all(2, false)).not.toEqual(all(1, false))
  })
})

describe('without ranks', () => {
  afterEach(() => destroyProcessGroup())

  test('rank and size default to those of the default group, each separately', async () => {
    await initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
    const sampler = new DistributedSampler(drawn)
    expect([sampler.rank, sampler.numReplicas, sampler.length]).toEqual([0, 1, 10])
    const first = new DistributedSampler(drawn, { numReplicas: 3, shuffle: false })
    expect([...first]).toEqual([0, 3, 6, 9])
    expect(() => new DistributedSampler(drawn, { rank: 1 })).toThrow(
      /rank must be an integer from 0 to 0, got 1/,
    )
  })

  test('and without a group the error says what to do', async () => {
    expect(() => new DistributedSampler(drawn)).toThrow(
      /numReplicas is missing, and there is no process group to take it from. Call init/,
    )
    expect(() => new DistributedSampler(drawn, { numReplicas: 2 })).toThrow(
      /rank is missing, and there is no/,
    )
    await initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
    await destroyProcessGroup()
    expect(() => new DistributedSampler(drawn)).toThrow(
      /numReplicas is missing, and there is no process group/,
    )
  })
})

test('a rank outside the group is refused', () => {
  const make = (numReplicas: number, rank: number) => () =>
    new DistributedSampler([1, 2], { numReplicas, rank })
  expect(make(2, 2)).toThrow('rank must be an integer from 0 to 1, got 2')
  expect(make(2, -1)).toThrow('got -1')
  expect(make(0, 0)).toThrow('numReplicas')
  expect(() => new DistributedSampler([1], { numReplicas: 1, rank: 0 }).setEpoch(-1)).toThrow(
    'epoch',
  )
})
