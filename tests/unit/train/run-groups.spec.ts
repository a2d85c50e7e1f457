import { expect, test } from 'vitest'
import type { Runtime } from '../../../src/graph/memory/runtime.ts'
import { Eviction } from '../../../src/trainer/loop/eviction.ts'
import { RunGroups, type RunGroupsOptions } from '../../../src/trainer/loop/run-groups.ts'
import { beginning, type KeptState, KeptStates } from '../../../src/trainer/saves/kept-states.ts'
import { GpuError } from '../../../src/util/errors.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { ringOf } from '../../support/process-ring.ts'

const deviceLost = () => new GpuError('gpu.lost', 'device: it was lost.')
const queue = { onSubmittedWorkDone: async () => undefined }
const lost = Promise.resolve('the driver was reset')
const open = () => ({ gpu: { lost, queue } }) as unknown as Runtime

/** Of a run that trains nothing: its states, each of a step, are in `kept`. */
function groupsOf(options: Pick<RunGroupsOptions, 'group'> & Partial<RunGroupsOptions>) {
  const kept = new KeptStates()
  const groups = new RunGroups({
    kept,
    runtime: open(),
    reopen: async () => open(),
    warn: () => undefined,
    run: {
      hasTrained: () => true,
      brought: () => ({ suspect: 0, hasGiven: false, hasOtherRanks: false }),
      keepNow: async () => undefined,
      goesBack: () => false,
      leaves: () => undefined,
      joined: () => undefined,
    },
    ...options,
  })
  const keep = (step: number) => kept.add({ progress: { ...beginning, step } } as KeptState)
  return { groups, keep }
}

/** Loses the device of one rank alone, with the state of each of these steps kept just before. Returns the steps from which it continued. */
async function lose(steps: readonly number[]): Promise<number[]> {
  const [group] = await ringOf(1)
  const { groups, keep } = groupsOf({ group })
  const from: number[] = []
  const left = [...steps]
  const end = groups.run(async (settled) => {
    if (settled) from.push(settled.step)
    const step = left.shift()
    if (step === undefined) return
    keep(step)
    throw deviceLost()
  })
  await end.catch((error) => expect(error).toEqual(deviceLost()))
  expect(groups.lostDevices).toBe(from.length)
  group.destroy()
  return from
}

test('one rank outlives any number of lost devices with five steps in between', async () => {
  expect(await lose([4, 16, 29, 42, 47, 52])).toEqual([4, 16, 29, 42, 47, 52])
})

test('one rank outlives three lost devices with fewer steps in between', async () => {
  expect(await lose([4, 5, 6, 7, 8])).toEqual([4, 5, 6])
  expect(await lose([40, 44, 48, 52])).toEqual([40, 44, 48])
})

test('an elastic run continues without the rank that loses its device again and again', async () => {
  const room = new ElasticRoom(['a', 'b', 'c'])
  const ranks = ['a', 'b', 'c'].map(async (name) => {
    const evicted: (readonly number[])[] = []
    const { groups, keep } = groupsOf({
      group: await room.next(name),
      ...(name !== 'b' && { runtime: {} as Runtime }),
      groups: {
        after: () => room.next(name),
        evict: (ranks) => {
          evicted.push(ranks)
          room.become(['a', 'c'])
        },
      },
      isElastic: true,
    })
    keep(9)
    const from: number[] = []
    const end = groups.run(async (settled) => {
      if (settled) from.push(settled.step)
      const { group } = groups
      if (group.size === 2) return settled!.losses
      if (name === 'b') throw deviceLost()
      await group.barrier()
      throw new Error('the group has not ended')
    })
    if (name !== 'b') {
      // What the rank that is gone did does not count for them.
      expect(await end).toBe(0)
      expect(from).toEqual([9, 9, 9, 9])
      expect(evicted).toEqual([[1]])
      return
    }
    const evict = await end.catch((error: unknown) => error)
    expect(evict).toBeInstanceOf(Eviction)
    expect(evict).toMatchObject({
      code: 'gpu.lost',
      ranks: [1],
      message: expect.stringMatching(
        /^recovery: the 3 ranks went back 4 times .* rank 1 lost its device \(the driver was reset\)\. The others continue without rank 1\. Check the GPU there/,
      ),
    })
    expect(from).toEqual([9, 9, 9])
    expect(groups.leavesAlone).toBe(true)
  })
  await Promise.all(ranks)
})
