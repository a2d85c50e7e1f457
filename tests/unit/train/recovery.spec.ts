import { expect, test } from 'vitest'
import type { Runtime } from '../../../src/graph/memory/runtime.ts'
import { Recovery } from '../../../src/trainer/loop/recovery.ts'
import { beginning, type KeptState, KeptStates } from '../../../src/trainer/saves/kept-state.ts'
import { GpuError } from '../../../src/util/errors.ts'
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
