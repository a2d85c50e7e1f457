import { describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { runEagerly } from '../../src/graph/compile/eager.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import type { InputTypes, TracedFunction } from '../../src/graph/plan/prepare.ts'
import type { RunOutputs } from '../../src/graph/plan/step-program.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import {
  randomScalarNames,
  resetRandomLayers,
  setNextRandomStep,
} from '../../src/graph/trace/random.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { CharRnn } from '../../src/nn/char-rnn.ts'
import { Dropout } from '../../src/nn/dropout.ts'
import type { Module } from '../../src/nn/module.ts'
import { packPaddedSequence, padPackedSequence } from '../../src/nn/packed-sequence.ts'
import { GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell } from '../../src/nn/recurrent.ts'
import type { RecurrentBase } from '../../src/nn/recurrent-base.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { tensorType } from '../../src/util/shape.ts'
import goldenText from '../golden/rnn.json?raw'
import {
  allowedDistance,
  type GoldenResult,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from '../support/golden.ts'
import { noteShare, seedCases, titleOf } from '../support/golden-seeds.ts'
import { testRuntime } from '../support/run-op.ts'

// Cells, layers and packed sequences with all gradients, and a training of 30 steps, against PyTorch (tests/golden/rnn.py).

interface GoldenCase {
  readonly name: string
  readonly x: GoldenTensor
  readonly states: readonly GoldenTensor[]
  readonly lengths: readonly number[] | null
  readonly weights: Record<string, GoldenTensor>
  readonly coefficients: Record<string, GoldenTensor>
  readonly outputs: Record<string, GoldenResult>
}

const golden = JSON.parse(goldenText) as {
  cases: GoldenCase[]
  trajectory: {
    vocabulary: number
    embedding: number
    hidden: number
    steps: number
    T: number
    B: number
    lr: number
    weights: Record<string, GoldenTensor>
    text: number[]
    firsts: number[][]
    losses: GoldenResult
  }
}

const runtime = await testRuntime()
const floats = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))
const leaf = (tensor: GoldenTensor) => new Parameter(tensor.shape, floats(tensor))
const load = (module: Module, weights: Record<string, GoldenTensor>) =>
  module.loadStateDict(
    Object.fromEntries(
      Object.entries(weights).map(([key, tensor]) => [
        key,
        { shape: tensor.shape, data: floats(tensor) },
      ]),
    ),
  )

const layers: Record<string, () => RecurrentBase> = {
  RNN: () => new RNN(5, 6),
  'GRU without bias, batch first': () => new GRU(5, 6, { bias: false, batchFirst: true }),
  'LSTM, wide': () => new LSTM(5, 8),
  'LSTM, 2 layers, both directions, batch first, packed 5 3 1': () =>
    new LSTM(5, 4, { numLayers: 2, bidirectional: true, batchFirst: true }),
  'GRU, 2 layers, both directions, packed 5 3 1': () =>
    new GRU(5, 4, { numLayers: 2, bidirectional: true }),
  'RNN, packed 1 3 2, total length 5': () => new RNN(5, 4, { bidirectional: true }),
}

type Results = Record<string, Tensor>

const cells: Record<string, () => { module: Module; run(x: Tensor, states: Tensor[]): Results }> = {
  RNNCell() {
    const module = new RNNCell(5, 6)
    return { module, run: (x, [h]) => ({ hn: module.forward(x, h) }) }
  },
  'RNNCell relu'() {
    const module = new RNNCell(5, 6, { nonlinearity: 'relu' })
    return { module, run: (x, [h]) => ({ hn: module.forward(x, h) }) }
  },
  GRUCell() {
    const module = new GRUCell(5, 6)
    return { module, run: (x, [h]) => ({ hn: module.forward(x, h) }) }
  },
  LSTMCell() {
    const module = new LSTMCell(5, 6)
    return { module, run: (x, [h, c]) => ({ ...module.withState(x, h, c) }) }
  },
}

/** Runs the case once; `lengths` are part of the program or given to the run. */
async function resultsOf(example: GoldenCase, lengthsAre: 'fixed' | 'given') {
  const x = leaf(example.x)
  const states = example.states.map(leaf)
  const [h0, c0] = states
  const cell = cells[example.name]?.()
  const layer = cell ? undefined : layers[example.name]()
  const module: Module = cell?.module ?? layer!
  load(module, example.weights)
  const { lengths } = example
  const inputs: InputTypes = {
    ...Object.fromEntries(
      Object.entries(example.coefficients).map(([key, tensor]) => [key, tensorType(tensor.shape)]),
    ),
    ...(lengths && lengthsAre === 'given'
      ? { lengths: tensorType([lengths.length], 'i32' as const) }
      : {}),
  }
  const forward = (given: Results): Results => {
    if (cell) return cell.run(x, states)
    if (!lengths) {
      const { output, hn, cn } = layer!.withState(x, { h0, c0 })
      return { y: output, hn, ...(cn ? { cn } : {}) }
    }
    const { batchFirst } = layer!
    const packed = packPaddedSequence(x, given.lengths ?? lengths, { batchFirst })
    const { output, hn, cn } = layer!.withState(packed, { h0, c0 })
    const totalLength = example.outputs.y.shape[batchFirst ? 1 : 0]
    const padded = padPackedSequence(output, { batchFirst, totalLength })
    return { y: padded.output, hn, ...(cn ? { cn } : {}) }
  }
  const program = await compile(
    (given) => {
      const results = forward(given)
      const loss = Object.entries(results)
        .map(([key, value]) => value.mul(given[key]).sum())
        .reduce((sum, part) => sum.add(part))
      loss.backward()
      const gradients: [string, Parameter | undefined][] = [
        ['dx', x],
        ['dh0', h0],
        ['dc0', c0],
        ...[...module.namedParameters()].map(([key, parameter]): [string, Parameter] => [
          `d:${key}`,
          parameter,
        ]),
      ]
      return {
        ...results,
        ...Object.fromEntries(
          gradients.flatMap(([key, parameter]) => (parameter ? [[key, parameter.grad!]] : [])),
        ),
      }
    },
    inputs,
    { runtime },
  )
  const outputs = await program.run({
    ...Object.fromEntries(
      Object.entries(example.coefficients).map(([key, tensor]) => [key, floats(tensor)]),
    ),
    ...(lengths && lengthsAre === 'given' ? { lengths: Int32Array.from(lengths) } : {}),
  })
  program.destroy()
  return outputs
}

function expectClose(outputs: RunOutputs, example: GoldenCase): void {
  expect(Object.keys(outputs).sort()).toEqual(Object.keys(example.outputs).sort())
  const problems = Object.entries(example.outputs).flatMap(([key, result]) => {
    const wanted = valuesOf(result)
    const got = largestDistance(outputs[key] as Float32Array, wanted)
    const allowed = allowedDistance(result.distance, wanted)
    noteShare(got, allowed)
    return got <= allowed ? [] : [`${key}: ${got} from float64, allowed ${allowed}`]
  })
  expect(problems).toEqual([])
}

describe('results and gradients', () => {
  for (const example of [...golden.cases, ...seedCases<GoldenCase>('rnn')]) {
    test(titleOf(example), async () => {
      const fixed = await resultsOf(example, 'fixed')
      expectClose(fixed, example)
      if (!example.lengths) return
      // Lengths that each run gives lead to the same bits.
      expect(await resultsOf(example, 'given')).toEqual(fixed)
    })
  }
})

test('packPaddedSequence and padPackedSequence refuse lengths that do not fit', async () => {
  const types = { x: tensorType([4, 2, 3]) }
  const tryOut = (act: (x: Tensor) => Tensor) =>
    compile(({ x }) => ({ y: act(x) }), types, { runtime })
  await expect(tryOut((x) => packPaddedSequence(x, [5, 1]).data)).rejects.toThrow(
    /from 1 to 4.*\[5, 1\]/,
  )
  await expect(tryOut((x) => packPaddedSequence(x, [1]).data)).rejects.toThrow(/2 lengths/)
  const padding = (x: Tensor) =>
    padPackedSequence(packPaddedSequence(x, [3, 1]), { totalLength: 2 }).output
  await expect(tryOut(padding)).rejects.toThrow(/totalLength must be at least 3, got 2/)
  await expect(tryOut((x) => new LSTM(4, 2).forward(x))).rejects.toThrow(
    /LSTM: x must be \[T, B, 4\]/,
  )
})

test('padPackedSequence cuts to the longest sequence, or fills up to totalLength', async () => {
  const x = Float32Array.from({ length: 24 }, (_, i) => Math.cos(i))
  const module = new RNN(3, 5)
  const padded = async (totalLength?: number) => {
    const program = await compile(
      (given) => {
        const { output } = module.withState(packPaddedSequence(given.x, [3, 1]))
        const { output: y } = padPackedSequence(output, { totalLength })
        const byBatch = padPackedSequence(output, { totalLength, batchFirst: true }).output
        return { y, byBatch: byBatch.transpose(0, 1) }
      },
      { x: tensorType([4, 2, 3]) },
      { runtime },
    )
    const outputs = await program.run({ x })
    program.destroy()
    expect(outputs.byBatch).toEqual(outputs.y)
    return [...outputs.y]
  }
  const longest = await padded()
  expect(longest).toHaveLength(3 * 2 * 5)
  expect(longest.slice(15, 20)).toEqual([0, 0, 0, 0, 0])
  expect(longest.slice(20, 25).every((value) => value !== 0)).toBe(true)
  expect(await padded(6)).toEqual([...longest, ...new Array<number>(30).fill(0)])
})

test('dropout acts between layers, in training alone, with masks that go by sample', async () => {
  const [T, B, H] = [4, 3, 8]
  const options = { numLayers: 2, dropout: 0.5 }
  resetRandomLayers()
  const whole = new GRU(2, H, options)
  resetRandomLayers()
  const samplesFirst = new GRU(2, H, { ...options, batchFirst: true })
  // The same by hand, with samples first where the mask is drawn.
  resetRandomLayers()
  const [first, between, second] = [new GRU(2, H), new Dropout(0.5), new GRU(H, H)]
  const byHand = (x: Tensor) =>
    second.forward(between.forward(first.forward(x).transpose(0, 1)).transpose(0, 1))
  const state = Object.fromEntries(
    Object.entries(await whole.stateDict()).map(([key, { shape, data }], n) => [
      key,
      { shape, data: Float32Array.from(data, (_, i) => Math.cos(i + n) / 2) },
    ]),
  )
  expect(Object.keys(state)).toHaveLength(8)
  whole.loadStateDict(state)
  samplesFirst.loadStateDict(state)
  const ofLayer = (layer: number) =>
    Object.fromEntries(
      Object.entries(state).flatMap(([key, tensor]) =>
        key.endsWith(`l${layer}`) ? [[key.replace(/\d$/, '0'), tensor]] : [],
      ),
    )
  first.loadStateDict(ofLayer(0))
  second.loadStateDict(ofLayer(1))

  const x = Float32Array.from({ length: T * B * 2 }, (_, i) => Math.sin(i))
  /** Two steps' outputs and, in training, the gradients by the first layer's weight. */
  const evaluate = async (forward: (x: Tensor) => Tensor, mode: boolean, layer: GRU) => {
    for (const module of [whole, samplesFirst, first, between, second]) module.train(mode)
    const program = await compile(
      (given): Record<string, Tensor> => {
        const y = forward(given.x)
        if (mode) y.mul(y).sum().backward()
        const dw = layer.parameters()[0].grad
        return dw ? { y, dw } : { y }
      },
      { x: tensorType([T, B, 2]) },
      { runtime },
    )
    setNextRandomStep(0)
    const steps = [await program.run({ x }), await program.run({ x })]
    program.destroy()
    return steps.map(({ y, dw }) => [[...y], [...(dw ?? [])]])
  }
  const dropped = await evaluate((given) => whole.forward(given), true, whole)
  expect(dropped[1], 'each step draws anew').not.toEqual(dropped[0])
  expect(await evaluate(byHand, true, first)).toEqual(dropped)
  const evaluated = await evaluate((given) => whole.forward(given), false, whole)
  expect(evaluated[1]).toEqual(evaluated[0])
  expect(await evaluate(byHand, false, first)).toEqual(evaluated)

  // One sample alone, given its number, has the dropout that it has within the batch.
  samplesFirst.train()
  const alone = await compile(
    (given) => ({ y: samplesFirst.forward(given.x) }),
    { x: tensorType([1, T, 2]) },
    { runtime },
  )
  for (let b = 0; b < B; b++) {
    const cut = (values: ArrayLike<number>, width: number) =>
      Array.from({ length: T * width }, (_, i) => {
        const t = Math.floor(i / width)
        return values[(t * B + b) * width + (i % width)]
      })
    const { y } = await alone.run(
      { x: Float32Array.from(cut(x, 2)) },
      { [randomScalarNames.sample]: b, [randomScalarNames.step]: 0 },
    )
    expect(largestDistance(y, cut(dropped[0][0], H))).toBeLessThan(1e-6)
  }
  alone.destroy()
})

test('a training of 30 steps stays with PyTorch', async () => {
  const { vocabulary, embedding, hidden, steps, T, B, lr, weights, text, firsts, losses } =
    golden.trajectory
  const model = new CharRnn(vocabulary, { embeddingSize: embedding, hiddenSize: hidden })
  load(model, weights)
  const stepOf = (of: CharRnn, optimizer: AdamW): TracedFunction => {
    return ({ x, y }) => {
      const loss = crossEntropy(of.forward(x).reshape([-1, vocabulary]), y.reshape([-1]))
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    }
  }
  const types = { x: tensorType([B, T], 'i32'), y: tensorType([B, T], 'i32') }
  const batchOf = (step: number) => {
    const rows = (offset: number) =>
      Int32Array.from(
        firsts[step].flatMap((first) => text.slice(first + offset, first + offset + T)),
      )
    return { x: rows(0), y: rows(1) }
  }
  const training = stepOf(model, new AdamW(model.parameters(), { lr }))
  const program = await compile(training, types, { runtime })
  const got = new Float32Array(steps)
  for (let step = 0; step < steps; step++) got[step] = (await program.run(batchOf(step))).loss[0]
  const wanted = valuesOf(losses)
  const distance = largestDistance(got, wanted)
  console.log(
    `char rnn: ${program.dispatchCount} dispatches, ${distance.toExponential(2)} from float64, PyTorch ${losses.distance.toExponential(2)}`,
  )
  expect(distance).toBeLessThanOrEqual(allowedDistance(losses.distance, wanted))
  program.destroy()

  const eager = new CharRnn(vocabulary, { embeddingSize: embedding, hiddenSize: hidden })
  load(eager, weights)
  const eagerStep = stepOf(eager, new AdamW(eager.parameters(), { lr }))
  const fromEager = new Float32Array(steps)
  for (let step = 0; step < steps; step++)
    fromEager[step] = (await runEagerly(runtime, eagerStep, types, batchOf(step))).loss[0]
  expect(fromEager, 'replay equals eager bit for bit').toEqual(got)
  for (const [key, { data }] of Object.entries(await eager.stateDict()))
    expect(data, key).toEqual((await model.stateDict())[key].data)
})
