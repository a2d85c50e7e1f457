import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { runEagerly } from '../../src/graph/compile/eager.ts'
import { type AnyRuntime, ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { Module } from '../../src/nn/module.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { tensorType } from '../../src/util/shape.ts'
import {
  type ConvRun,
  compileConvRun,
  convModel,
  convOptimizer,
  convRecipes,
  convRuntime,
  convStep,
  convTypes,
} from './conv-models.ts'
import { allowedDistance, type GoldenResult, largestDistance, valuesOf } from './golden.ts'
import { noteShare } from './golden-seeds.ts'
import { testRuntime } from './run-op.ts'

/** What was held so far, as a share of the allowed distance. */
export const shares: string[] = []

/** Fails where `got` is farther from PyTorch's float64 than allowed. */
export function hold(what: string, got: ArrayLike<number>, result: GoldenResult): void {
  const expected = valuesOf(result)
  const distance = largestDistance(got, expected)
  const allowed = allowedDistance(result.distance, expected)
  noteShare(distance, allowed)
  shares.push(`${what} ${(distance / allowed).toFixed(2)}`)
  expect(distance, `${what}: PyTorch's own distance is ${result.distance}`).toBeLessThanOrEqual(
    allowed,
  )
}

type State = Awaited<ReturnType<Module['stateDict']>>

const bitsOf = (values: ArrayLike<number>) => [...new Uint32Array(Float32Array.from(values).buffer)]

/** Parameters and buffers as raw words, by key. */
async function stateBits(model: Module): Promise<Record<string, string>> {
  const state = await model.stateDict()
  return Object.fromEntries(
    Object.entries(state).map(([key, { data }]) => [key, bitsOf(data).join()]),
  )
}

/**
 * Steps that are held against PyTorch's. Rounding turns a ReLU on or off in a long run of a ResNet, on each device in another step, and from
 * there its losses differ by more than roundings.
 */
const heldSteps = ({ name, steps }: ConvRun) => (name === 'resnet18 on 32x32' ? 10 : steps)

/** Distance of two lists of numbers, as a share of the second's length. */
function relativeDistance(got: readonly number[], expected: readonly number[]): number {
  const squares = (values: readonly number[]) => values.reduce((sum, value) => sum + value ** 2, 0)
  return Math.sqrt(squares(got.map((value, i) => value - expected[i])) / squares(expected))
}

/** Returns what makes single steps of plain SGD from given states: the loss, the changes of parameters, and the running statistics. */
async function singleSteps(run: ConvRun, runtime: AnyRuntime) {
  const model = await convModel(run)
  const optimizer = new SGD(model.parameters(), { lr: run.options.lr })
  const program = await compile(convStep(model, optimizer), convTypes(run), { runtime })
  return {
    async from(before: State, step: number) {
      model.loadStateDict(before)
      const { loss } = await program.run(convRecipes[run.name].batch(step, run.batchSize))
      const after = Object.entries(await model.stateDict())
      const statistics = after.filter(([key]) => key.includes('running_'))
      const parameters = after.filter(([key]) => /\.(weight|bias)$/.test(key))
      return {
        loss: loss[0],
        statistics: statistics.flatMap(([, { data }]) => [...data]),
        changes: parameters.flatMap(([key, { data }]) =>
          Array.from(data, (value, i) => value - before[key].data[i]),
        ),
      }
    },
    destroy: () => program.destroy(),
  }
}

/** Fails where a step from a state is farther from that of the ops' definitions, in float64 and rounded after each op, than allowed. */
async function holdSingleSteps(run: ConvRun, states: ReadonlyMap<number, State>): Promise<void> {
  const own = await singleSteps(run, await convRuntime(run))
  const reference = await singleSteps(run, new ReferenceRuntime())
  for (const [step, state] of states) {
    const [got, expected] = [await own.from(state, step), await reference.from(state, step)]
    const distance = Math.abs(got.loss - expected.loss)
    const statistics = relativeDistance(got.statistics, expected.statistics)
    const changes = relativeDistance(got.changes, expected.changes)
    console.log(`step ${step + 1}: loss ${distance}, statistics ${statistics}, changes ${changes}`)
    expect(distance).toBeLessThanOrEqual(allowedDistance(run.distances[0], [expected.loss]))
    expect(statistics).toBeLessThan(1e-6)
    expect(changes).toBeLessThan(1e-3)
  }
  own.destroy()
  reference.destroy()
}

/** Tests of a model with convolutions against PyTorch's losses, statistics and logits, and of its replay against eager steps. */
export function convRunTests(runs: readonly ConvRun[]): void {
  for (const run of runs) {
    const { batch, evaluation, sampleShape } = convRecipes[run.name]
    const timeout = 240_000

    const held = heldSteps(run)
    const others =
      held < run.steps
        ? '; single steps after them are those of the reference'
        : ', and so do running statistics and evaluated logits'
    test(`${run.name}: ${held} losses stay within 8x of PyTorch's own distance${others}`, {
      timeout,
    }, async () => {
      const model = await convModel(run)
      const began = performance.now()
      const program = await compileConvRun(run, model)
      const compiled = performance.now()
      let distance = 0
      let share = 0
      const states = new Map<number, State>()
      for (let step = 0; step < run.steps; step++) {
        if (step >= held && step % 10 === 0) states.set(step, await model.stateDict())
        const { loss } = await program.run(batch(step, run.batchSize))
        if (step >= held) continue
        distance = Math.max(distance, run.distances[step])
        const allowed = allowedDistance(distance, [run.losses[step]])
        share = Math.max(share, Math.abs(loss[0] - run.losses[step]) / allowed)
        expect(
          Math.abs(loss[0] - run.losses[step]),
          `step ${step + 1}: ours ${loss[0]}, PyTorch ${run.losses[step]}`,
        ).toBeLessThanOrEqual(allowed)
      }
      const seconds = (from: number) => ((performance.now() - from) / 1000).toFixed(1)
      const { peakBytes, lowerBoundBytes } = program.memory
      console.log(
        `${run.name}: ${program.dispatchCount} dispatches, compiled in ${((compiled - began) / 1000).toFixed(1)} s, ${run.steps} steps in ${seconds(compiled)} s, losses took ${share.toFixed(2)} of the allowed distance, peak ${peakBytes} bytes, bound ${lowerBoundBytes}`,
      )
      const state = await model.stateDict()
      if (states.size > 0) {
        await holdSingleSteps(run, states)
        program.destroy()
        return
      }
      for (const [key, result] of Object.entries(run.finalState)) {
        hold(key, state[key].data, result as GoldenResult)
      }
      const counts = Object.keys(state).filter((key) => key.endsWith('num_batches_tracked'))
      expect(counts.length).toBeGreaterThan(0)
      for (const key of counts) expect([...state[key].data]).toEqual([run.steps])

      model.eval()
      const { rows, x } = evaluation()
      const forward = await compile(
        (given) => ({ logits: model.forward(given.x) }),
        { x: tensorType([rows, ...sampleShape]) },
        { runtime: await convRuntime(run) },
      )
      const { logits } = await forward.run({ x })
      hold('final logits', logits, run.finalLogits as GoldenResult)
      console.log(shares.slice(-5).join('\n'))
      program.destroy()
      forward.destroy()
    })

    // Long to compile, for kernels that the other runs replay as well.
    if (['resnet18 of full width', 'resnet50 of width 4'].includes(run.name)) continue
    test(`${run.name}: replay equals eager bit for bit, buffers included`, {
      timeout,
    }, async () => {
      const steps = run.name.startsWith('resnet') ? 4 : run.steps
      const replayed = await convModel(run)
      const program = await compileConvRun(run, replayed)
      const fromReplay: number[] = []
      const { gpu } = await testRuntime()
      let before = { ...gpu.counters }
      for (let step = 0; step < steps; step++) {
        if (step === 1) before = { ...gpu.counters }
        fromReplay.push((await program.run(batch(step, run.batchSize))).loss[0])
      }
      expect(gpu.counters.buffers - before.buffers).toBe(0)
      expect(gpu.counters.bindGroups - before.bindGroups).toBe(0)

      const eager = await convModel(run)
      const optimizer = convOptimizer(run, eager)
      const fromEager: number[] = []
      for (let step = 0; step < steps; step++) {
        const outputs = await runEagerly(
          await convRuntime(run),
          convStep(eager, optimizer),
          convTypes(run),
          batch(step, run.batchSize),
        )
        fromEager.push(outputs.loss[0])
      }
      expect(bitsOf(fromReplay)).toEqual(bitsOf(fromEager))
      expect(await stateBits(replayed)).toEqual(await stateBits(eager))
      program.destroy()
    })
  }
}
