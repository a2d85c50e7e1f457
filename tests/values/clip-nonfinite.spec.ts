import { afterEach, describe, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { runEagerly } from '../../src/graph/compile/eager.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Module } from '../../src/nn/module.ts'
import { Adam } from '../../src/optim/adam.ts'
import { type ClipGradNormOptions, clipGradNorm, clipGradValue } from '../../src/optim/clip.ts'
import { GradScaler } from '../../src/optim/grad-scaler.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { tensorType } from '../../src/util/shape.ts'
import { ringOf } from '../support/process-ring.ts'
import { testRuntime } from '../support/run-op.ts'

// Infinite and NaN gradients under clipping: what torch 1.13's clip_grad_norm_ and clip_grad_value_ make of them.

afterEach(async () => (await testRuntime()).gpu.check())

const nan = Number.NaN
const inf = Number.POSITIVE_INFINITY
const types = { g: tensorType([3]), h: tensorType([1]) }
const good = { g: Float32Array.of(2, 3, -0.25), h: Float32Array.of(1) }
const withFirst = (first: number) => ({ ...good, g: Float32Array.of(first, 3, -0.25) })

/** Two parameters of zeros, in separate groups, whose gradients are g and h; SGD at 1, so that they end as minus their gradients. */
function pair() {
  const make = (name: string, count: number) => {
    const parameter = new Parameter([count], new Float32Array(count))
    parameter.name = name
    return parameter
  }
  const [p, q] = [make('p', 3), make('q', 1)]
  const lossOf = ({ g, h }: Record<string, Tensor>) => p.mul(g).sum().add(q.mul(h).sum())
  const gradients = async () => [...(await p.read()), ...(await q.read())].map((value) => 0 - value)
  return { p, q, both: [p, q], lossOf, gradients }
}

const runtimeOf = async (device: string) =>
  device === 'reference' ? new ReferenceRuntime() : await testRuntime()

describe.each(['webgpu', 'reference'])('on %s', (device) => {
  /** Norm and clipped gradients of one step. */
  async function clipped(first: number, clip: (both: Parameter[]) => Tensor | undefined) {
    const { both, lossOf, gradients, p, q } = pair()
    const optimizer = new SGD([{ params: [p] }, { params: [q] }], { lr: 1 })
    const program = await compile(
      (given) => {
        lossOf(given).backward()
        const norm = clip(both)
        optimizer.step()
        const outputs: Record<string, Tensor> = norm ? { norm } : {}
        return outputs
      },
      types,
      { runtime: await runtimeOf(device) },
    )
    const { norm } = await program.run(withFirst(first))
    program.destroy()
    return { norm: norm?.[0], gradients: await gradients() }
  }

  test.each([1, 2, inf])('norm %s of NaN is NaN, and so become all gradients', async (normType) => {
    const got = await clipped(nan, (both) => clipGradNorm(both, 1, { normType }))
    expect(got).toEqual({ norm: nan, gradients: [nan, nan, nan, nan] })
  })

  test.each([1, 2, inf])(
    'norm %s of an infinity leaves 0, and NaN in its place',
    async (normType) => {
      for (const first of [inf, -inf]) {
        const { norm, gradients } = await clipped(first, (both) =>
          clipGradNorm(both, 1, { normType }),
        )
        expect(norm).toBe(inf)
        expect(gradients.map(Math.abs)).toEqual([nan, 0, 0, 0])
      }
    },
  )

  test('a value of NaN stays NaN, an infinite one becomes the limit', async () => {
    const clip = (both: Parameter[]) => {
      clipGradValue(both, 0.5)
      return undefined
    }
    expect((await clipped(nan, clip)).gradients).toEqual([nan, 0.5, -0.25, 0.5])
    expect((await clipped(inf, clip)).gradients).toEqual([0.5, 0.5, -0.25, 0.5])
    expect((await clipped(-inf, clip)).gradients).toEqual([-0.5, 0.5, -0.25, 0.5])
  })

  test('errorIfNonfinite: the run rejects, its update is left out and not counted, and the next one works', async () => {
    const runtime = await runtimeOf(device)
    const train = async (options: ClipGradNormOptions) => {
      const { both, lossOf, gradients } = pair()
      const optimizer = new Adam(both, { lr: 0.1 })
      const program = await compile(
        (given) => {
          lossOf(given).backward()
          const norm = clipGradNorm(both, 1, options)
          optimizer.step()
          return { norm }
        },
        types,
        { runtime },
      )
      return { optimizer, program, gradients }
    }
    const one = await train({ errorIfNonfinite: true })
    expect(Object.keys(await one.program.run(good))).toEqual(['norm'])
    const before = await one.gradients()
    for (const first of [nan, inf]) {
      await expect(one.program.run(withFirst(first))).rejects.toMatchObject({
        code: 'train.nan',
        message: `clipGradNorm: the gradient norm is ${first}. The update was skipped. Lower the learning rate, or remove errorIfNonfinite.`,
      })
      expect(await one.gradients()).toEqual(before)
    }
    await one.program.run(good)
    const other = await train({})
    await other.program.run(good)
    await other.program.run(good)
    const expected = await other.gradients()
    ;(await one.gradients()).forEach((value, i) => {
      expect(value).toBeCloseTo(expected[i], 6)
    })
    const { state } = await one.optimizer.stateDict()
    expect(state[0]['step']).toBe(2)
    one.program.destroy()
    other.program.destroy()
  })
})

test('errorIfNonfinite with a loss scale rejects the step that is left out', async () => {
  const { both, lossOf, gradients } = pair()
  const optimizer = new SGD(both, { lr: 1 })
  const scaler = new GradScaler({ initScale: 4 })
  const program = await compile(
    (given) => {
      scaler.scale(lossOf(given)).backward()
      scaler.unscale(optimizer)
      clipGradNorm(both, 100, { errorIfNonfinite: true })
      scaler.step(optimizer)
      scaler.update()
      return {}
    },
    types,
    { runtime: await testRuntime() },
  )
  await expect(program.run(withFirst(nan))).rejects.toThrow(/the gradient norm is NaN/)
  expect(await program.run(good)).toEqual({})
  expect(await gradients()).toEqual([2, 3, -0.25, 1])
  expect(await scaler.getScale()).toBe(2)
  program.destroy()
})

test('errorIfNonfinite in an eager run', async () => {
  const { both, lossOf } = pair()
  const optimizer = new SGD(both, { lr: 1 })
  const step: TracedFunction = (given) => {
    lossOf(given).backward()
    clipGradNorm(both, 1, { errorIfNonfinite: true })
    optimizer.step()
    return {}
  }
  const runtime = await testRuntime()
  expect(await runEagerly(runtime, step, types, good)).toEqual({})
  await expect(runEagerly(runtime, step, types, withFirst(inf))).rejects.toThrow(
    /the gradient norm is Infinity/,
  )
})

class Wrapped extends Module {
  readonly p: Parameter
  readonly q: Parameter
  constructor(p: Parameter, q: Parameter) {
    super()
    this.p = p
    this.q = q
  }
  forward(x: Tensor): Tensor {
    return x
  }
}

test('ranks agree: a NaN on one of them is in the infinity norm of all, and all reject', async () => {
  const runtime = await testRuntime()
  const members = await Promise.all(
    (await ringOf(2)).map(async (processGroup) => {
      const { p, q, both, lossOf, gradients } = pair()
      new DistributedDataParallel(new Wrapped(p, q), { processGroup })
      const optimizer = new SGD(both, { lr: 1 })
      const program = await compile(
        (given) => {
          lossOf(given).backward()
          clipGradNorm(both, 1, { normType: inf, errorIfNonfinite: true })
          optimizer.step()
          return {}
        },
        types,
        { runtime },
      )
      return { program, gradients }
    }),
  )
  const runs = members.map(({ program }, rank) => program.run(rank === 1 ? withFirst(nan) : good))
  for (const run of await Promise.allSettled(runs)) {
    expect(run).toMatchObject({ status: 'rejected', reason: { code: 'train.nan' } })
  }
  for (const { gradients, program } of members) {
    expect(await gradients()).toEqual([0, 0, 0, 0])
    program.destroy()
  }
})

test('what clipGradNorm does not know is refused', async () => {
  const { both } = pair()
  expect(() => clipGradNorm(both, 1, { norm_type: 1 } as never)).toThrow(
    /clipGradNorm: expected options among normType, errorIfNonfinite, got "norm_type"/,
  )
  expect(() => clipGradNorm(both, 1, 1 as never)).toThrow(/expected an object with options/)
})
