import { afterEach, expect, test, vi } from 'vitest'
import { Int8State } from '../../../src/ddp/hooks/int8-hook.ts'
import { PowerSgdState } from '../../../src/ddp/hooks/power-sgd.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { endAll, parametersOf, train } from '../../support/classification.ts'
import {
  checkHookResume,
  hookedRanks,
  saveHooked,
  statefulHooks,
} from '../../support/hook-resume.ts'

const runtime = new ReferenceRuntime()
afterEach(() => vi.restoreAllMocks())

const cases = Object.keys(statefulHooks).flatMap((name) =>
  [2, 3].map((size) => [name, size] as const),
)

test.each(cases)(
  '%s, %d ranks: 4 epochs are 2, a checkpoint with the hook and 2 more, bit for bit',
  (name, size) => checkHookResume(statefulHooks[name], size, runtime),
)

test.each(Object.keys(statefulHooks))(
  '%s on another number of ranks: unsent gradients are dropped, with one warning',
  async (name) => {
    const hook = statefulHooks[name]
    const folder = seenFolder()
    const saved = await hookedRanks(hook, 2, runtime)
    await train(saved.ranks, 4)
    const { errors, worldSize: _, ...others } = await dictOf(saved)
    expect(Object.keys(errors)).toHaveLength(4)
    await saveHooked(saved, folder)
    const warnings = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
    const resumed = await hookedRanks(hook, 3, runtime, folder)
    expect(warnings.mock.calls.map(([text]) => text)).toEqual([
      `tabring ${saved.states[0].constructor.name}: dropped the unsent gradients of 2 ranks, because there are 3 ranks now.`,
      'tabring: loadCheckpoint: the run will not continue bit for bit like the saved one: ranks 2, now 3.',
    ])
    // State that is equal on all ranks stays.
    expect(await dictOf(resumed)).toEqual({ worldSize: 3, errors: {}, ...others })
    await train(resumed.ranks, 2)
    const [first, second, third] = await parametersOf(resumed.ranks)
    expect(second).toEqual(first)
    expect(third).toEqual(first)
    for (const { ranks } of [saved, resumed]) endAll(ranks)
  },
)

const dictOf = async ({ states }: Awaited<ReturnType<typeof hookedRanks>>) =>
  (await Promise.all(states.map((state) => state.stateDict())))[0]

test('a state that no model has, that of another hook, and that of another model are refused', async () => {
  await expect(new Int8State().stateDict()).rejects.toThrow('this state belongs to no model yet')
  const { ranks, states } = await hookedRanks(statefulHooks.powerSgd, 1, runtime)
  const int8 = { worldSize: 1, errors: {} }
  expect(() => states[0].loadStateDict(int8)).toThrow('the state of another hook')
  const other = { ...int8, iter: 1, factors: {}, errors: { 0: new Float32Array(3) } }
  expect(() => states[0].loadStateDict(other)).toThrow(
    'PowerSgdState: expected 1 x 2048 numbers for "module.0.weight", got 3',
  )
  const early = new PowerSgdState()
  early.loadStateDict({ ...int8, iter: 7, factors: {} })
  const later = await hookedRanks({ ...statefulHooks.powerSgd, make: () => early }, 1, runtime)
  expect(early.iter).toBe(7)
  for (const one of [ranks, later.ranks]) endAll(one)
})
