import { afterEach, describe, expect, test } from 'vitest'
import { attentionMaps } from '../../../demos/text/attention-maps.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { runEagerly } from '../../../src/graph/compile/eager.ts'
import type { HostData } from '../../../src/graph/memory/host-values.ts'
import type { StepProgram } from '../../../src/graph/plan/step-program.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { randomScalarNames } from '../../../src/graph/trace/random.ts'
import { MultiheadAttention } from '../../../src/nn/attention.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import type { Module } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { tensorType } from '../../../src/util/shape.ts'
import goldenText from '../../golden/attention.json?raw'
import mapsText from '../../golden/attention-maps.json?raw'
import {
  type AttentionCase,
  attentionCases,
  programOfAttention,
} from '../../support/attention-calls.ts'
import {
  allowedDistance,
  type GoldenCase,
  type GoldenResult,
  type GoldenTensor,
  largestDistance,
  typeOf,
  valuesOf,
} from '../../support/golden.ts'
import {
  batchOf,
  type GptRun,
  goldenGpt,
  length,
  run,
  stepTypes,
  tokenAt,
  trainingStep,
} from '../../support/golden-gpt.ts'
import { noteShare, seedCases, titleOf } from '../../support/golden-seeds.ts'
import { models } from '../../support/models.ts'
import { testRuntime } from '../../support/run-op.ts'

// Normalisation, attention and a GPT against PyTorch's float64 results (tests/golden/attention.py), within 8 times the distance
// of PyTorch's own float32 results; dropout's masks over splits; a GPT step's dispatches.

interface MultiheadCase extends GoldenCase {
  readonly batchFirst: boolean
  readonly isCausal: boolean
  readonly padding: GoldenTensor | null
  readonly state: Record<string, GoldenTensor>
}

const golden = JSON.parse(goldenText) as { multihead: MultiheadCase[] }

const runtime = await testRuntime()
afterEach(async () => (await testRuntime()).gpu.check())

const floats = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor) as Float64Array)
const dataOf = (tensor: GoldenTensor): HostData =>
  tensor.dtype === 'i32' ? Int32Array.from(valuesOf(tensor)) : floats(tensor)

/** The largest share of its allowed distance that any result took, by op. */
const shares = new Map<string, number>()

function problemsOf(
  op: string,
  got: Record<string, ArrayLike<number>>,
  expected: Record<string, GoldenResult>,
  /**
   * The size of the largest scores. Backward makes probabilities from each row's stored log of sums, whose rounding is that many
   * 2^-24 of them, where PyTorch 1.13 stores the probabilities.
   */
  scores = 1,
): string[] {
  return Object.entries(expected).flatMap(([name, result]) => {
    const values = valuesOf(result)
    const size = largestDistance(values, new Float64Array(values.length))
    const own = Math.max(result.distance, size * scores * 2 ** -24)
    const allowed = allowedDistance(own, values)
    const distance = largestDistance(got[name] ?? [], values)
    noteShare(distance, allowed)
    shares.set(op, Math.max(shares.get(op) ?? 0, distance / allowed))
    return distance <= allowed ? [] : [`${name}: ${distance} from float64, allowed ${allowed}`]
  })
}

describe('ops against PyTorch', () => {
  for (const useNaiveKernels of [false, true]) {
    for (const sample of [...attentionCases, ...seedCases<AttentionCase>('attention')]) {
      test(`${titleOf(sample)}${useNaiveKernels ? ', naive' : ''}`, async () => {
        const { fn, types, data } = programOfAttention(sample)
        const program = await compile(fn, types, { runtime, useNaiveKernels })
        const got = await program.run(data)
        program.destroy()
        const scores = /large scores/.test(sample.name) ? 32 : 1
        expect(problemsOf(sample.op, got, sample.outputs, scores)).toEqual([])
      })
    }
  }

  for (const sample of golden.multihead) {
    test(`MultiheadAttention: ${sample.name}`, async () => {
      const module = new MultiheadAttention(12, 3, { batchFirst: sample.batchFirst })
      const state = Object.entries(sample.state)
      module.loadStateDict(
        Object.fromEntries(
          state.map(([key, tensor]) => [key, { shape: tensor.shape, data: floats(tensor) }]),
        ),
      )
      const { dy, ...inputs } = sample.inputs
      const leaves = Object.entries(inputs).map(
        ([name, tensor]) => [name, new Parameter(tensor.shape, floats(tensor))] as const,
      )
      const padding = sample.padding
      const program = await compile(
        (given) => {
          const { query, ...others } = Object.fromEntries(leaves)
          const y = module.forward(query, {
            ...others,
            isCausal: sample.isCausal,
            ...(padding && { keyPaddingMask: given['padding'] }),
          })
          y.mul(given['dy']).sum().backward()
          const all = [...leaves, ...module.namedParameters()]
          return {
            y,
            ...Object.fromEntries(all.map(([name, p]) => [`d${name}`, p.grad!])),
          }
        },
        { dy: typeOf(dy), ...(padding && { padding: typeOf(padding) }) },
        { runtime },
      )
      const got = await program.run({
        dy: floats(dy),
        ...(padding && { padding: dataOf(padding) }),
      })
      program.destroy()
      expect(problemsOf('MultiheadAttention', got, sample.outputs)).toEqual([])
    })
  }

  test('the distances, as shares of what is allowed', () => {
    console.log([...shares].map(([name, share]) => `${name} ${share.toFixed(2)}`).join(', '))
    expect(shares.size).toBeGreaterThan(0)
  })
})

// --- GPT -------------------------------------------------------------------------------------------------------------

/** Fewer than replayed ones, since each eager step is traced again. */
const eagerSteps = 30

const bitsOf = (values: ArrayLike<number>) => [...new Uint32Array(Float32Array.from(values).buffer)]

async function parameterBits(model: Module): Promise<string> {
  const state = await model.stateDict()
  return JSON.stringify(Object.entries(state).map(([key, { data }]) => [key, bitsOf(data)]))
}

describe('gpt', () => {
  test('50 losses and the final logits stay within 8x of PyTorch, replay equals eager', {
    timeout: 240_000,
  }, async () => {
    const model = goldenGpt()
    const optimizer = new AdamW(model.parameters(), { lr: run.lr })
    const program = await compile(trainingStep(model, optimizer), stepTypes(), { runtime })
    const losses: number[] = []
    let fromReplay = ''
    for (let step = 0; step < run.steps; step++) {
      losses.push((await program.run(batchOf(step))).loss[0])
      if (step + 1 === eagerSteps) fromReplay = await parameterBits(model)
    }
    let distance = 0
    let worst = 0
    losses.forEach((loss, step) => {
      distance = Math.max(distance, run.distances[step])
      const allowed = allowedDistance(distance, [run.losses[step]])
      worst = Math.max(worst, Math.abs(loss - run.losses[step]) / allowed)
      expect(
        Math.abs(loss - run.losses[step]),
        `step ${step + 1}: ours ${loss}, PyTorch ${run.losses[step]}`,
      ).toBeLessThanOrEqual(allowed)
    })
    model.eval()
    const forward = await compile(
      ({ tokens }) => ({ logits: model.forward(tokens) }),
      { tokens: tensorType([1, length], 'i32') },
      { runtime },
    )
    const tokens = Int32Array.from({ length }, (_, t) => tokenAt(1_000_000 + t))
    const { logits } = await forward.run({ tokens })
    const expected = valuesOf(run.finalLogits)
    const share =
      largestDistance(logits.subarray(-expected.length), expected) /
      allowedDistance(run.finalLogits.distance, expected)
    console.log(`gpt: losses ${worst.toFixed(2)}, logits ${share.toFixed(2)} of what is allowed`)
    expect(share).toBeLessThanOrEqual(1)
    forward.destroy()

    const eager = goldenGpt()
    const eagerOptimizer = new AdamW(eager.parameters(), { lr: run.lr })
    const fromEager: number[] = []
    for (let step = 0; step < eagerSteps; step++) {
      const outputs = await runEagerly(
        runtime,
        trainingStep(eager, eagerOptimizer),
        stepTypes(),
        batchOf(step),
      )
      fromEager.push(outputs.loss[0])
    }
    expect(bitsOf(losses.slice(0, eagerSteps))).toEqual(bitsOf(fromEager))
    expect(fromReplay).toEqual(await parameterBits(eager))
    program.destroy()
  })

  test("the attention maps that the text demo shows are PyTorch's", async () => {
    const { weights, tokens, maps } = JSON.parse(mapsText) as Pick<GptRun, 'weights'> & {
      tokens: number[]
      maps: GoldenResult
    }
    const model = goldenGpt({}, weights)
    const program = await compile(
      ({ tokens }) => Object.fromEntries(attentionMaps(model, tokens).map((map, i) => [i, map])),
      { tokens: tensorType([1, tokens.length], 'i32') },
      { runtime },
    )
    const layers = Object.values(await program.run({ tokens: Int32Array.from(tokens) }))
    program.destroy()
    const got = layers.flatMap((map) => [...map])
    const expected = valuesOf(maps)
    const share = largestDistance(got, expected) / allowedDistance(maps.distance, expected)
    console.log(`attention maps: ${share.toFixed(2)} of what is allowed`)
    expect(share).toBeLessThanOrEqual(1)
    // Far from even, so that a head taken for another one would show.
    expect(Math.max(...expected.slice(-tokens.length))).toBeGreaterThan(0.8)
  })

  test('a layer is at most 22 dispatches, or 38 on cpu, forward and backward, a replayed step creates nothing', async () => {
    const { gpu } = await testRuntime()
    const counts: number[] = []
    const tookMs = ({ times }: StepProgram) => times.forward + times.backward + times.optimizer
    for (const layers of [1, 2]) {
      const model = models.gpt({ ...run.config, layers })
      const optimizer = new AdamW(model.parameters(), { lr: run.lr })
      const program = await compile(trainingStep(model, optimizer), stepTypes(), { runtime })
      counts.push(program.dispatchCount)
      await program.run(batchOf(0))
      const before = { ...gpu.counters }
      // A step is cut as the one before it took.
      let max = tookMs(program)
      for (let step = 1; step < 4; step++) {
        await program.run(batchOf(step))
        max = Math.max(max, tookMs(program))
      }
      const { buffers, bindGroups, pipelines, submits } = gpu.counters
      expect({
        buffers: buffers - before.buffers,
        bindGroups: bindGroups - before.bindGroups,
        pipelines: pipelines - before.pipelines,
      }).toEqual({ buffers: 0, bindGroups: 0, pipelines: 0 })
      // One for each 100 ms that the device may have needed.
      expect((submits - before.submits) / 3).toBeLessThanOrEqual(Math.max(1, Math.ceil(max / 100)))
      const { peakBytes, lowerBoundBytes } = program.memory
      console.log(
        `gpt of ${layers} layers: ${program.dispatchCount} dispatches, peak ${peakBytes} bytes, bound ${lowerBoundBytes}`,
      )
      expect(peakBytes).toBeLessThanOrEqual(1.1 * lowerBoundBytes)
      program.destroy()
    }
    // Products of the device cpu first pack what they read.
    expect(counts[1] - counts[0]).toBeLessThanOrEqual(gpu.id.type === 'cpu' ? 38 : 22)
  })
})

// --- dropout ---------------------------------------------------------------------------------------------------------

describe('dropout', () => {
  /** The model's logits on samples [first, first + count) of a step's batch. */
  async function logitsOf(model: Module, first: number, count: number, step: number) {
    const program = await compile(
      ({ tokens }) => ({ logits: model.forward(tokens) }),
      { tokens: tensorType([count, length], 'i32') },
      { runtime },
    )
    const { logits } = await program.run(
      { tokens: batchOf(0, first, count).tokens },
      program.prepared.trace.scalars.has(randomScalarNames.step)
        ? { [randomScalarNames.step]: step, [randomScalarNames.sample]: first }
        : {},
    )
    program.destroy()
    return bitsOf(logits)
  }

  test('every split of a batch draws the masks of the whole batch; another step draws others', async () => {
    const model = goldenGpt({ dropout: 0.2 })
    const whole = await logitsOf(model, 0, 4, 5)
    const parts = [...(await logitsOf(model, 0, 1, 5)), ...(await logitsOf(model, 1, 3, 5))]
    expect(parts).toEqual(whole)
    expect(await logitsOf(model, 0, 4, 6)).not.toEqual(whole)
    model.eval()
    expect(await logitsOf(model, 0, 4, 0)).toEqual(await logitsOf(goldenGpt(), 0, 4, 0))
  })

  test('a program counts its steps without an argument; a share p is dropped and the mean is kept', async () => {
    const layer = new Dropout(0.3)
    const count = 40_000
    const program = await compile(
      ({ x }) => ({ y: layer.forward(x) }),
      { x: tensorType([4, count / 4]) },
      { runtime },
    )
    const x = new Float32Array(count).fill(1)
    const [first, second] = [(await program.run({ x })).y, (await program.run({ x })).y]
    expect(bitsOf(second)).not.toEqual(bitsOf(first))
    for (const y of [first, second]) {
      const dropped = [...y].filter((value) => value === 0).length / count
      expect(Math.abs(dropped - 0.3)).toBeLessThan(0.012)
      expect([...y].every((value) => value === 0 || value === Math.fround(1 / 0.7))).toBe(true)
    }
    program.destroy()
  })
})
