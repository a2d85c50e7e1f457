import { expect, test } from 'vitest'
import { LossScale } from '../../../src/ddp/exact/loss-scale.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'

test('LossScale begins with the state of a GradScaler, and loads it', async () => {
  const scale = new LossScale(60)
  const state = await new GradScaler().stateDict()
  expect(await scale.stateDict()).toEqual(state)
  scale.loadStateDict({ ...state, scale: 2 ** 5, _growth_tracker: 7 })
  expect([...scale.state]).toEqual([32, 7])
})

test('LossScale leaves a batch of sums the size that means have', () => {
  const exponents = [1, 2, 60, 64, 65].map((rows) => new LossScale(rows).exponent)
  expect(exponents).toEqual([16, 15, 10, 10, 9])
})

test('LossScale doubles after 2000 finite steps in a row, up to 2^126', async () => {
  const scale = new LossScale(1)
  for (let step = 0; step < 1999; step++) scale.keep()
  expect(scale.shrink()).toBe(true)
  for (let step = 0; step < 1999; step++) scale.keep()
  expect([...scale.state]).toEqual([2 ** 15, 1999])
  scale.keep()
  expect([...scale.state]).toEqual([2 ** 16, 0])
  const state = await scale.stateDict()
  scale.loadStateDict({ ...state, scale: 2 ** 126, _growth_tracker: 1999 })
  scale.keep()
  expect(scale.exponent).toBe(126)
})

test('LossScale does not fall below 1', async () => {
  const scale = new LossScale(1)
  scale.loadStateDict({ ...(await scale.stateDict()), scale: 2 })
  expect([scale.shrink(), scale.shrink()]).toEqual([true, false])
  expect([...scale.state]).toEqual([1, 0])
})

test.each([3, 0, Number.NaN])('LossScale refuses the scale %d', async (value) => {
  const scale = new LossScale(1)
  const state = await scale.stateDict()
  expect(() => scale.loadStateDict({ ...state, scale: value })).toThrow('a power of two')
})
