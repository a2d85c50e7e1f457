import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import type { StateDict } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import type { OptimizerStateDict } from '../../../src/optim/state-dict.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import {
  type ParallelizePlan,
  parallelizeModule,
} from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Ranks of one process, on the CPU, over real message channels.

const length = 5
const config = { vocabSize: 11, blockSize: length, layers: 2, heads: 6, width: 12 }
const plan = {
  'transformer.h.*.attn.c_attn': new ColwiseParallel({ blocks: 3 }),
  'transformer.h.*.attn.c_proj': new RowwiseParallel(),
  'transformer.h.*.mlp.c_fc': new ColwiseParallel(),
  'transformer.h.*.mlp.c_proj': new RowwiseParallel(),
}

interface Saved {
  readonly model: StateDict
  readonly optimizer: OptimizerStateDict
}

interface Training {
  /** How many ranks divide the layers; the others are replicas with other samples. */
  readonly tp: number
  readonly isCheckpointed?: boolean
  readonly from?: Saved
  readonly firstStep?: number
}

const samples = 4
const inputsOf = (first: number, count: number, step: number) => {
  const from = first * length
  const tokens = (factor: number) =>
    Int32Array.from({ length: count * length }, (_, i) => ((from + i) * factor + step) % 11)
  return { x: tokens(7), y: tokens(5) }
}

async function train(group: ProcessGroup, { tp, isCheckpointed, from, firstStep = 0 }: Training) {
  const dp = group.size / tp
  const mesh = await initDeviceMesh('reference', [dp, tp], {
    meshDimNames: ['dp', 'tp'],
    processGroup: group,
  })
  // Only rank 0's values count.
  manualSeed(3 + group.rank)
  const model = gpt({ ...config, checkpoint: isCheckpointed ?? false })
  if (tp > 1) await parallelizeModule(model, mesh.get('tp'), plan)
  if (dp > 1) await replicate(model, { mesh: mesh.get('dp') })
  const optimizer = new AdamW(model.parameters(), { lr: 0.01, weightDecay: 0.1 })
  if (from) {
    model.loadStateDict(from.model)
    optimizer.loadStateDict(from.optimizer)
  }
  const rows = samples / dp
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const loss = crossEntropy(model.forward(x).reshape([rows * length, config.vocabSize]), y)
      loss.backward()
      const norm = clipGradNorm(model.parameters(), 0.5)
      optimizer.step()
      return { loss, norm }
    },
    { x: tensorType([rows, length], 'i32'), y: tensorType([rows * length], 'i32') },
    { device: 'reference' },
  )
  const losses: number[] = []
  const norms: number[] = []
  for (let i = 0; i < 4; i++) {
    const inputs = inputsOf(mesh.getLocalRank('dp') * rows, rows, firstStep + i)
    const { loss, norm } = await step.run(inputs)
    losses.push(loss[0])
    norms.push(norm[0])
  }
  const elements = model.parameters().reduce((sum, { count }) => sum + count, 0)
  const saved: Saved = { model: await model.stateDict(), optimizer: await optimizer.stateDict() }
  return { losses, norms, elements, saved, peakBytes: step.memory.peakBytes }
}

const trainOn = async (size: number, training: Training) =>
  (await onRanks(size, (group) => train(group, training))).map(resultOf)

/** The largest difference between two saved states. */
function distance(a: Saved, b: Saved): number {
  const floats = ({ model, optimizer }: Saved) => [
    ...Object.values(model).map(({ data }) => data as Float32Array),
    ...Object.values(optimizer.state).flatMap((entry) =>
      Object.values(entry).flatMap((one) =>
        one !== null && typeof one === 'object' ? [one.data as Float32Array] : [],
      ),
    ),
  ]
  const [all, others] = [floats(a), floats(b)]
  expect(all.map((one) => one.length)).toEqual(others.map((one) => one.length))
  return Math.max(
    ...all.flatMap((one, i) => Array.from(one, (value, j) => Math.abs(value - others[i][j]))),
  )
}

describe('parallelizeModule', () => {
  test.each([
    ['2 ranks', 2, { tp: 2 }],
    ['3 ranks', 3, { tp: 3 }],
    ['2 ranks with checkpointed blocks', 2, { tp: 2, isCheckpointed: true }],
    ['2 x 2 ranks with replicas', 4, { tp: 2 }],
  ])('a GPT on %s trains as one rank does', async (_, size, training) => {
    const [one] = await trainOn(1, { tp: 1 })
    const ranks = await trainOn(size, training)
    for (const { losses, norms, saved, elements } of ranks) {
      if (size === training.tp)
        for (const [i, loss] of losses.entries()) expect(loss).toBeCloseTo(one.losses[i], 5)
      for (const [i, norm] of norms.entries()) expect(norm).toBeCloseTo(one.norms[i], 5)
      expect(Object.keys(saved.model)).toEqual(Object.keys(one.saved.model))
      expect(distance(saved, one.saved)).toBeLessThan(2e-5)
      expect(saved).toEqual(ranks[0].saved)
      expect(elements).toBeLessThan(0.75 * one.elements)
    }
  })

  test('a run saved on 2 ranks continues on 3, and on one', async () => {
    const [first] = await trainOn(2, { tp: 2 })
    const next = { from: first.saved, firstStep: 4 }
    const [three] = await trainOn(3, { tp: 3, ...next })
    const [one] = await trainOn(1, { tp: 1, ...next })
    expect(distance(three.saved, one.saved)).toBeLessThan(2e-5)
  })

  test.each<[string, ParallelizePlan, string, code?: string]>([
    [
      'a class in the place of a style',
      { 'transformer.h.0.mlp.c_fc': ColwiseParallel as never },
      'plan["transformer.h.0.mlp.c_fc"] must be a style, such as new ColwiseParallel(), got a function',
      'config.invalid',
    ],
    [
      'a path that no layer has',
      { 'net.3': new ColwiseParallel() },
      'the module has no layer "net.3"',
    ],
    [
      'a layer that is not linear',
      { 'transformer.ln_f': new ColwiseParallel() },
      '"transformer.ln_f" is a LayerNorm; only linear layers can be divided',
    ],
    [
      'features that the ranks cannot divide',
      { 'transformer.h.0.mlp.c_fc': new ColwiseParallel({ blocks: 3 }) },
      '"transformer.h.0.mlp.c_fc" has 40 features in 3 blocks, which 2 ranks cannot divide equally. Choose a multiple of 6.',
    ],
    [
      'a layer that is named twice',
      {
        'transformer.h.*.mlp.c_fc': new ColwiseParallel(),
        'transformer.h.0.mlp.c_fc': new RowwiseParallel(),
      },
      'ranks share "transformer.h.0.mlp.c_fc.weight" already',
    ],
  ])('names %s', async (_, wrong, message, code = 'graph.misuse') => {
    const ended = await onRanks(2, async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      await parallelizeModule(gpt({ ...config, heads: 2, width: 10 }), mesh, wrong)
    })
    for (const one of ended)
      expect(one).toMatchObject({
        status: 'rejected',
        reason: { code, message: expect.stringContaining(message) },
      })
  })

  test('dropout of attention with divided heads is refused', async () => {
    const ended = await onRanks(2, async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = await parallelizeModule(gpt({ ...config, dropout: 0.1 }), mesh, plan)
      const x = tensorType([2, length], 'i32')
      await compile(({ x }) => ({ y: model.forward(x) }), { x }, { device: 'reference' })
    })
    for (const one of ended)
      expect(one).toMatchObject({ reason: { message: expect.stringContaining('dropout') } })
  })
})
