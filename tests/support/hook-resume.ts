import { expect } from 'vitest'
import { loadCheckpoint, saveCheckpoint } from '../../src/ddp/checkpoint/checkpoint.ts'
import type { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import type { HookState } from '../../src/ddp/hooks/hook-state.ts'
import { Int8State, int8CompressHook } from '../../src/ddp/hooks/int8-hook.ts'
import { PowerSgdState, powerSgdHook } from '../../src/ddp/hooks/power-sgd.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { type SeenFolder, seenFolder } from './checkpoint-folders.ts'
import { type ClassifyingRank, classifiers, endAll, parametersOf, train } from './classification.ts'

/** A hook that keeps a state: how to make one, and how a model gets it. */
interface StatefulHook {
  make(): HookState
  register(ddp: DistributedDataParallel, state: HookState): void
}

export const statefulHooks: Record<string, StatefulHook> = {
  int8: {
    make: () => new Int8State(),
    register: (ddp, state) => ddp.registerCommHook(state as Int8State, int8CompressHook),
  },
  powerSgd: {
    // The third step is the first one that is compressed.
    make: () => new PowerSgdState({ matrixApproximationRank: 2, startPowerSgdIter: 2 }),
    register: (ddp, state) => ddp.registerCommHook(state as PowerSgdState, powerSgdHook),
  },
}

const stepsOfEpoch = 3

/** Ranks of a classifier with a hook each; from a folder, the parts of the checkpoint in it that are named. */
export async function hookedRanks(
  { make, register }: StatefulHook,
  size: number,
  runtime: AnyRuntime,
  folder?: SeenFolder,
  isHookLoaded = true,
): Promise<{ ranks: ClassifyingRank[]; states: HookState[] }> {
  const states = Array.from({ length: size }, make)
  const models: DistributedDataParallel[] = []
  const ranks = await classifiers(
    size,
    runtime,
    (ddp, rank) => {
      models[rank] = ddp
      register(ddp, states[rank])
    },
    {
      load: async (parts, rank) => {
        if (!folder) return
        const all = isHookLoaded ? { ...parts, hook: states[rank] } : parts
        const options = { folder, processGroup: models[rank].processGroup, strict: isHookLoaded }
        await loadCheckpoint(all, options)
      },
    },
  )
  return { ranks, states }
}

/** Saves what the ranks have, all together. */
export async function saveHooked(
  { ranks, states }: { ranks: ClassifyingRank[]; states: HookState[] },
  folder: SeenFolder,
): Promise<void> {
  await Promise.all(
    ranks.map(({ group, model, optimizer }, rank) =>
      saveCheckpoint(
        { model, optimizer, hook: states[rank], step: 1 },
        { processGroup: group, folder },
      ),
    ),
  )
}

/** 4 epochs must be 2, a checkpoint and 2 more, bit for bit; and must not without the hook's state. */
export async function checkHookResume(
  hook: StatefulHook,
  size: number,
  runtime: AnyRuntime,
): Promise<void> {
  const epochs = async (
    { ranks, states }: Awaited<ReturnType<typeof hookedRanks>>,
    first: number,
    count: number,
  ) => {
    const loss = await train(ranks, count * stepsOfEpoch, undefined, first * stepsOfEpoch)
    const end = { loss, parameters: await parametersOf(ranks), states: await dicts(states) }
    for (const own of end.parameters) expect(own).toEqual(end.parameters[0])
    return end
  }
  const dicts = (states: HookState[]) => Promise.all(states.map((state) => state.stateDict()))
  const whole = await hookedRanks(hook, size, runtime)
  const expected = await epochs(whole, 0, 4)

  const first = await hookedRanks(hook, size, runtime)
  const folder = seenFolder()
  const half = await epochs(first, 0, 2)
  for (const state of half.states) expect(state).toEqual(half.states[0])
  const kept = Object.values(half.states[0].errors)
  expect(kept.some((values) => values.some((value) => value !== 0))).toBe(true)
  await saveHooked(first, folder)

  const second = await hookedRanks(hook, size, runtime, folder)
  expect(await dicts(second.states)).toEqual(half.states)
  const got = await epochs(second, 2, 2)
  expect(got.parameters).toEqual(expected.parameters)
  expect(got.states).toEqual(expected.states)
  // Of the last five steps, all of which the resumed run has made.
  expect(got.loss).toBe(expected.loss)

  const without = await hookedRanks(hook, size, runtime, folder, false)
  expect((await epochs(without, 2, 2)).parameters).not.toEqual(expected.parameters)
  for (const { ranks } of [whole, first, second, without]) endAll(ranks)
}
