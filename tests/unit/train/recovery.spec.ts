import { expect, test } from 'vitest'
import type { Runtime } from '../../../src/graph/memory/runtime.ts'
import { Eviction } from '../../../src/trainer/loop/eviction.ts'
import { Recovery } from '../../../src/trainer/loop/recovery.ts'
import { beginning, type KeptState } from '../../../src/trainer/saves/kept-state.ts'
import { KeptStates } from '../../../src/trainer/saves/kept-states.ts'
import { GpuError, PeerError } from '../../../src/util/errors.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { ringOf } from '../../support/process-ring.ts'

/** Loses the device of one rank alone, with the state of each of these steps kept just before. Returns the steps from which it continued. */
async function lose(steps: readonly number[]): Promise<number[]> {
  const [group] = await ringOf(1)
  const open = () => ({ gpu: { lost: Promise.resolve('the driver was reset') } }) as Runtime
  const recovery = new Recovery({ reopen: async () => open(), warn: () => undefined })
  const kept = new KeptStates()
  const brought = () => ({ suspect: 0, hasGiven: false, hasOtherRanks: false })
  const from: number[] = []
  for (const step of steps) {
    kept.add({ progress: { ...beginning, step } } as KeptState)
    const error = new GpuError('gpu.lost', 'device: it was lost.')
    const place = { group, runtime: open() }
    const next = await recovery.after(error, place, kept, brought).catch(() => undefined)
    if (!next) break
    from.push(next.step)
  }
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
  const lost = Promise.resolve('the driver was reset')
  const queue = { onSubmittedWorkDone: async () => undefined }
  const open = (name: string) => (name === 'b' ? { gpu: { lost, queue } } : {}) as Runtime
  const ranks = ['a', 'b', 'c'].map(async (name) => {
    const kept = new KeptStates()
    kept.add({ progress: { ...beginning, step: 9 } } as KeptState)
    const brought = () => ({ suspect: 0, hasGiven: false, hasOtherRanks: false })
    let group = await room.next(name)
    const recovery = new Recovery({
      reopen: async () => open(name),
      regroup: async () => {
        group = await room.next(name)
        return group
      },
      isElastic: true,
      warn: () => undefined,
    })
    const recover = async () => {
      const failed = name === 'b' && new GpuError('gpu.lost', 'device: it was lost.')
      const error = failed || (await group.barrier().catch((error) => error))
      return recovery.after(error, { group, runtime: open(name) }, kept, brought)
    }
    for (let loss = 1; loss <= 3; loss++) expect(await recover()).toMatchObject({ step: 9 })
    const evict: Eviction = await recover().catch((error) => error)
    expect(evict).toBeInstanceOf(Eviction)
    expect(evict).toMatchObject({
      code: 'gpu.lost',
      ranks: [1],
      message: expect.stringMatching(
        /^recovery: the 3 ranks went back 4 times .* rank 1 lost its device \(the driver was reset\)\. The others continue without rank 1\. Check the GPU there/,
      ),
    })
    if (name === 'b') return
    room.become(['a', 'c'])
    group.abort(new PeerError('peer.lost', evict.message))
    const next = await recovery.after(evict, { group, runtime: open(name) }, kept, brought)
    expect(next.group.size).toBe(2)
    // What the rank that is gone did does not count for them.
    expect(next.losses).toBe(0)
  })
  await Promise.all(ranks)
})
