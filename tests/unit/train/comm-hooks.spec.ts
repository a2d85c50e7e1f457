import { expect, test } from 'vitest'
import {
  allreduceHook,
  bf16CompressWrapper,
  type CommHook,
  fp16CompressHook,
  fp16CompressWrapper,
} from '../../../src/ddp/hooks/comm-hooks.ts'
import type { GradBucket } from '../../../src/ddp/hooks/grad-bucket.ts'
import { Int8State, int8CompressHook } from '../../../src/ddp/hooks/int8-hook.ts'
import { orthogonalize, PowerSgdState, powerSgdHook } from '../../../src/ddp/hooks/power-sgd.ts'
import { addBrain, encodeBrain } from '../../../src/ddp/hooks/wire-numbers.ts'
import { uniform } from '../../../src/util/random.ts'
import {
  classifiers,
  endAll,
  parametersOf,
  samplesOf,
  train,
} from '../../support/classification.ts'
import {
  band,
  broken,
  builtIn,
  byteTests,
  type Register,
  runtime,
} from '../../support/comm-hooks.ts'

const steps = 40

/** As PyTorch's documentation has it: `tensor = bucket.buffer().div_(world_size)`, then `dist.all_reduce(tensor)`. */
const asInPyTorch: CommHook<null> = (_, bucket) => {
  const tensor = bucket.buffer()
  for (let i = 0; i < tensor.length; i++) tensor[i] /= bucket.size
  return bucket.allReduce(tensor)
}

/** Trains; returns the last loss, and the parameters of all ranks. */
async function runWith(register?: Register) {
  const ranks = await classifiers(2, runtime, register)
  const loss = await train(ranks, steps)
  const parameters = await parametersOf(ranks)
  endAll(ranks)
  return { loss, parameters }
}

const plain = runWith(undefined)
const isInBand = (loss: number, reference: number) => Math.abs(loss - reference) <= band * reference

test('without a hook the classifier learns', async () => {
  const { loss } = await plain
  expect(loss).toBeLessThan(0.25)
  expect(loss).toBeGreaterThan(0.01)
})

test.each(Object.entries(builtIn))(
  '%s: the loss is within the band of the plain run, and ranks are equal to the bit',
  async (_, register) => {
    const reference = await plain
    const { loss, parameters } = await runWith(register)
    expect(isInBand(loss, reference.loss), `${loss} and ${reference.loss}`).toBe(true)
    expect(parameters[1]).toEqual(parameters[0])
    expect(parameters[0].every(Number.isFinite)).toBe(true)
  },
)

test('a broken codec is outside the band', async () => {
  const { loss, parameters } = await runWith((ddp) => ddp.registerCommHook(null, broken))
  expect(isInBand(loss, (await plain).loss), `${loss}`).toBe(false)
  expect(parameters[1]).toEqual(parameters[0])
})

test('the hook of the plain sum gives the bits of the plain run', async () => {
  expect((await runWith(builtIn.allreduce)).parameters).toEqual((await plain).parameters)
})

byteTests([3])

/** The end of three ranks with uneven shares, which clip. */
async function endOfThree(hook?: Register) {
  const ranks = await classifiers(3, runtime, hook, { clipsTo: 0.5 })
  const loss = await train(ranks, 30, [8, 5, 0])
  const parameters = await parametersOf(ranks)
  endAll(ranks)
  expect(parameters[1]).toEqual(parameters[0])
  expect(parameters[2]).toEqual(parameters[0])
  return { loss, parameters: parameters[0] }
}
let plainThree: ReturnType<typeof endOfThree> | undefined

test.each(Object.entries(builtIn))(
  '%s: three ranks with uneven shares and clipping stay within the band',
  async (name, register) => {
    plainThree ??= endOfThree()
    const [reference, got] = [await plainThree, await endOfThree(register)]
    if (name === 'allreduce') expect(got.parameters).toEqual(reference.parameters)
    expect(Math.abs(got.loss - reference.loss)).toBeLessThan(band * reference.loss)
  },
)

test('a hook sees each bucket of a step, in order, with its parameters, views and range', async () => {
  const seen: {
    index: number
    isLast: boolean
    names: string[]
    sums: number[]
    range: number[]
  }[][] = [[], []]
  const hook: CommHook<number> = async (rank, bucket: GradBucket) => {
    const { start, end } = bucket.ownRange()
    seen[rank].push({
      index: bucket.index(),
      isLast: bucket.isLast(),
      names: bucket.parameters().map(({ name }) => name),
      sums: bucket.gradients().map((gradient) => gradient.reduce((a, b) => a + b, 0)),
      range: [start, end],
    })
    expect(bucket.gradients()[0].buffer).toBe(bucket.buffer().buffer)
    return asInPyTorch(null, bucket)
  }
  const reference = await classifiers(2, runtime)
  const ranks = await classifiers(2, runtime, (ddp, rank) => ddp.registerCommHook(rank, hook))
  await train(reference, 3)
  await train(ranks, 3)
  expect(await parametersOf(ranks)).toEqual(await parametersOf(reference))
  const [first, second] = seen[0]
  expect(seen[0].length).toBe(6)
  expect(first).toMatchObject({ index: 0, isLast: false })
  expect(first.names).toContain('module.2.weight')
  expect([...first.names, ...second.names].sort()).toEqual(
    ['0.bias', '0.weight', '2.bias', '2.weight'].map((name) => `module.${name}`),
  )
  expect(second).toMatchObject({ index: 1, isLast: true })
  expect(first.sums[0]).not.toBe(seen[1][0].sums[0])
  expect(first.range[0]).toBe(0)
  expect(seen[1][0].range[0]).toBe(first.range[1])
  endAll([...reference, ...ranks])
})

test.each([2, 3])(
  'a hook of %d ranks as PyTorch documents it trains as without one, with uneven shares too',
  async (size) => {
    const end = async (register?: Register) => {
      const ranks = await classifiers(size, runtime, register)
      await train(ranks, 5, [8, 3, 6].slice(0, size))
      const parameters = await parametersOf(ranks)
      endAll(ranks)
      return parameters
    }
    const [[plainly], all] = [
      await end(),
      await end((ddp) => ddp.registerCommHook(null, asInPyTorch)),
    ]
    for (const own of all) {
      expect(own).toEqual(all[0])
      // A division by 3 and its inverse round.
      const off = Math.max(...own.map((value, i) => Math.abs(value - plainly[i])))
      if (size === 2) expect(off).toBe(0)
      else expect(off).toBeLessThan(1e-6)
    }
  },
)

test("a hook that sends nothing, as torch's noop_hook, updates each rank's part by its own gradient", async () => {
  const oneStep = async (register: NonNullable<Parameters<typeof classifiers>[2]>) => {
    const ranks = await classifiers(2, runtime, register)
    const before = (await parametersOf(ranks))[0]
    await train(ranks, 1)
    const after = (await parametersOf(ranks))[0]
    endAll(ranks)
    return after.map((value, i) => value - before[i])
  }
  const own: Float32Array[][] = [[], []]
  const steps = await oneStep((ddp, rank) =>
    ddp.registerCommHook(null, (_, bucket) => {
      const { start, end } = bucket.ownRange()
      own[rank].push(bucket.buffer().slice(start, end))
      return bucket.buffer()
    }),
  )
  const total = (values: Iterable<number>) => [...values].reduce((sum, one) => sum + one, 0)
  // The first step of SGD is lr times the gradient.
  expect(total(steps)).toBeCloseTo(-0.5 * total(own.flat().map(total)), 4)
  expect(Math.abs(total(steps))).toBeGreaterThan(1e-3)
})

test('a hook around a built-in one may change the gradients before it and after it', async () => {
  const step = async (register: Register) => {
    const ranks = await classifiers(3, runtime, register)
    const before = (await parametersOf(ranks))[0]
    await train(ranks, 1)
    const after = (await parametersOf(ranks))[0]
    endAll(ranks)
    return after.map((value, i) => value - before[i])
  }
  const once = await step(builtIn.allreduce)
  for (const inner of [allreduceHook, fp16CompressHook]) {
    const twice = await step((ddp) =>
      ddp.registerCommHook(null, (_, bucket) => {
        for (const gradient of bucket.gradients())
          for (let i = 0; i < gradient.length; i++) gradient[i] *= 2
        return inner(null, bucket)
      }),
    )
    for (const [i, value] of twice.entries()) expect(value).toBeCloseTo(2 * once[i], 3)
  }
  expect(Math.max(...once.map(Math.abs))).toBeGreaterThan(0.01)
})

test('a hook may call the group itself, with the keys that the bucket gives', async () => {
  const ranks = await classifiers(2, runtime, (ddp, rank) => {
    ddp.registerCommHook(rank, async (_, bucket) => {
      const mean = bucket.buffer().map((value) => value / bucket.size)
      await groups[rank].allReduce(mean, bucket.reserveKeys())
      return mean
    })
  })
  const groups = ranks.map(({ group }) => group)
  const reference = await classifiers(2, runtime)
  expect(await train(ranks, 2)).toBe(await train(reference, 2))
  expect(await parametersOf(ranks)).toEqual(await parametersOf(reference))
  endAll([...ranks, ...reference])
})

test('a second hook, and one that returns something else, are refused', async () => {
  const ranks = await classifiers(2, runtime, (ddp) =>
    ddp.registerCommHook(null, () => new Float32Array(3)),
  )
  expect(() => ranks[0].ddp.registerCommHook(null, allreduceHook)).toThrow(
    'registerCommHook: this model already has a hook',
  )
  const runs = ranks.map(({ program }) => program.run(samplesOf(0)))
  for (const outcome of await Promise.allSettled(runs)) {
    const said = /Float32Array of the bucket's \d+ elements, got 3 elements/
    expect(outcome).toMatchObject({ reason: { message: expect.stringMatching(said) } })
  }
  endAll(ranks)
  const [one] = await classifiers(1, runtime)
  const notAHook = 'fp16' as unknown as CommHook<null>
  expect(() => one.ddp.registerCommHook(null, notAHook)).toThrow('hook must be a function')
  endAll([one])
})

test('bfloat16 is the upper half of a float, ties to even', () => {
  const brain = new Float32Array(6)
  const values = [1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, Number.NaN, -3e38, Number.POSITIVE_INFINITY]
  addBrain(encodeBrain(Float32Array.from(values)), brain)
  const min = -3e38 * (1 + 2 ** -9)
  expect([...brain.slice(0, 4)]).toEqual([1, 1, 1 + 2 ** -6, Number.NaN])
  expect(Math.abs(brain[4] / min - 1)).toBeLessThan(2 ** -8)
  expect(brain[5]).toBe(Number.POSITIVE_INFINITY)
})

test('error feedback brings everything over in time; without it what is small is lost', async () => {
  // Beside a large gradient in its block a small one is rounded away.
  const arrived = async (useErrorFeedback: boolean) => {
    const states = [0, 1].map(() => new Int8State({ useErrorFeedback }))
    const total = [0, 0]
    const ranks = await classifiers(2, runtime, (ddp, rank) =>
      ddp.registerCommHook(states[rank], async (state, bucket) => {
        bucket.buffer().fill(0)
        for (let at = 0; at < bucket.buffer().length; at += 64) {
          bucket.buffer()[at] = 1
          bucket.buffer()[at + 1] = 0.001
        }
        const result = await int8CompressHook(state, bucket)
        const { start } = bucket.ownRange()
        if (bucket.index() === 0) total[rank] += result[start + 1]
        result.fill(0)
        return result
      }),
    )
    await train(ranks, 40)
    endAll(ranks)
    return total
  }
  // The mean of 40 steps of 0.001 from the other rank, and of as much of one's own, which is not rounded.
  for (const sum of await arrived(true)) expect(sum).toBeCloseTo(0.04, 2.4)
  for (const sum of await arrived(false)) expect(sum).toBeCloseTo(0.02, 5)
})

test('PowerSGD gives a mean of low rank exactly, begins uncompressed, and draws the same factors on all ranks', async () => {
  const states = [0, 1].map(
    () => new PowerSgdState({ startPowerSgdIter: 1, minCompressionRate: 0 }),
  )
  const worst: number[] = []
  const ranks = await classifiers(2, runtime, (ddp, rank) =>
    ddp.registerCommHook(states[rank], async (state, bucket) => {
      const expected = bucket.gradients().map((gradient, i) => {
        const [rows, columns = 1] = bucket.parameters()[i].shape
        const [u, v] = [uniform(2, 1, rows, -1, 1), uniform(2, 2, columns, -1, 1)]
        for (let at = 0; at < gradient.length; at++) {
          // Rank 0 gives one, rank 1 two of it.
          gradient[at] = (rank + 1) * u[Math.floor(at / columns)] * v[at % columns]
        }
        return gradient.map((value) => (1.5 * value) / (rank + 1))
      })
      const result = await powerSgdHook(state, bucket)
      const isWhole = state.iter <= 1
      const { start, end } = bucket.ownRange()
      let at = 0
      bucket.gradients().forEach((gradient, i) => {
        const from = (gradient.byteOffset - bucket.buffer().byteOffset) / 4
        for (let k = 0; k < gradient.length; k++) {
          at = from + k
          if (isWhole && (at < start || at >= end)) continue
          worst.push(Math.abs(result[at] - expected[i][k]))
        }
      })
      return result.fill(0)
    }),
  )
  await train(ranks, 3)
  expect(worst.length).toBeGreaterThan(1000)
  expect(Math.max(...worst)).toBeLessThan(1e-5)
  expect([...states[0].factors.values()]).toEqual([...states[1].factors.values()])
  expect(states[0].factors.size).toBe(2)
  endAll(ranks)
})

test('columns become orthonormal; one of zeros stays', () => {
  const p = Float32Array.of(3, 1, 0, 4, 2, 0, 0, 5, 0)
  orthogonalize(p, 3, 3, 0)
  const column = (k: number) => [p[k], p[3 + k], p[6 + k]]
  const dot = (a: number[], b: number[]) => a.reduce((sum, x, i) => sum + x * b[i], 0)
  expect(dot(column(0), column(0))).toBeCloseTo(1, 6)
  expect(dot(column(1), column(1))).toBeCloseTo(1, 6)
  expect(dot(column(0), column(1))).toBeCloseTo(0, 6)
  expect(column(2)).toEqual([0, 0, 0])
})

test.each([
  [() => new PowerSgdState({ matrixApproximationRank: 0 }), 'matrixApproximationRank'],
  [() => new PowerSgdState({ startPowerSgdIter: -1 }), 'startPowerSgdIter'],
  [() => new PowerSgdState({ warmStart: 1 as unknown as boolean }), 'warmStart'],
  [() => new Int8State({ useErrorFeedback: 0 as unknown as boolean }), 'useErrorFeedback'],
])('%s is refused', (make, name) => {
  expect(make).toThrow(name)
})

test('one rank calls its hook too: each bucket, and what it returns is the gradient', async () => {
  const seen: [index: number, isLast: boolean, names: number][] = []
  const doubled: CommHook<number> = (factor, bucket) => {
    seen.push([bucket.index(), bucket.isLast(), bucket.parameters().length])
    return bucket.buffer().map((value) => value * factor)
  }
  const oneStep = async (register?: Register) => {
    const ranks = await classifiers(1, runtime, register)
    const before = (await parametersOf(ranks))[0]
    await train(ranks, 1)
    const after = (await parametersOf(ranks))[0]
    endAll(ranks)
    return after.map((value, at) => value - before[at])
  }
  const plainSteps = await oneStep()
  const steps = await oneStep((ddp) => ddp.registerCommHook(2, doubled))
  expect(seen.length).toBeGreaterThan(1)
  expect(seen.map(([index]) => index)).toEqual(seen.map((_, at) => at))
  expect(seen.map(([, isLast]) => isLast)).toEqual(seen.map((_, at) => at === seen.length - 1))
  expect(seen.reduce((sum, [, , names]) => sum + names, 0)).toBe(4)
  expect(plainSteps.some((step) => Math.abs(step) > 1e-3)).toBe(true)
  for (const [at, step] of steps.entries()) expect(step).toBeCloseTo(2 * plainSteps[at], 5)
})

async function endOfOne(hook?: Register) {
  const ranks = await classifiers(1, runtime, hook, { clipsTo: 0.5 })
  const loss = await train(ranks, steps)
  const [parameters] = await parametersOf(ranks)
  endAll(ranks)
  return { loss, parameters }
}
let plainOne: ReturnType<typeof endOfOne> | undefined

test.each(Object.entries(builtIn))('%s on one rank', async (name, register) => {
  plainOne ??= endOfOne()
  const [reference, got] = [await plainOne, await endOfOne(register)]
  expect(isInBand(got.loss, reference.loss), `${got.loss} and ${reference.loss}`).toBe(true)
  // Buckets are others, so the norm is summed in another order.
  if (name === 'allreduce')
    for (const [at, value] of got.parameters.entries())
      expect(value).toBeCloseTo(reference.parameters[at], 4)
})

test('a hook that one rank registers after compiling is refused, since its steps would not call it', async () => {
  const [one] = await classifiers(1, runtime)
  expect(() => one.ddp.registerCommHook(null, allreduceHook)).toThrow(
    /registerCommHook: a step of this model has been compiled already/,
  )
  endAll([one])
})

test('a wrapped hook names its wrapper when it gets no bucket', () => {
  for (const wrapper of [fp16CompressWrapper, bf16CompressWrapper])
    expect(() => wrapper(allreduceHook)(null, [] as never)).toThrow(/Wrapper: bucket must be/)
})
