import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import { CausalLm } from '../../../src/nn/causal-lm.ts'
import type { CausalLmConfig } from '../../../src/nn/causal-lm-config.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { countElements, tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

const small: CausalLmConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 49_152,
  hiddenSize: 576,
  intermediateSize: 1536,
  numHiddenLayers: 2,
  numAttentionHeads: 9,
  numKeyValueHeads: 3,
  headDim: 64,
  maxPositionEmbeddings: 512,
  rmsNormEps: 1e-5,
  ropeTheta: 100_000,
  tieWordEmbeddings: true,
}
const tiny: CausalLmConfig = {
  ...small,
  ...{ vocabSize: 7, hiddenSize: 6, intermediateSize: 4, headDim: 2, numAttentionHeads: 3 },
  ...{ numKeyValueHeads: 1, numHiddenLayers: 1, maxPositionEmbeddings: 8 },
}

const MiB = 2 ** 20
const positions = 512

/** The plan of loss and gradients of two blocks of SmolLM2-135M, and the bytes of its largest result of an op. */
function planOf(isFrozen: boolean, checkpoint = false) {
  const model = new CausalLm(small, { checkpoint })
  model.model.embedTokens.requiresGrad_(!isFrozen)
  const type = tensorType([1, positions], 'i32')
  const { plan, nodes } = prepare(
    planningTarget,
    ({ tokens, labels }) => {
      const loss = model.loss(tokens, labels)
      loss.backward()
      const trained = [...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad)
      return { loss, ...Object.fromEntries(trained.map(([key, { grad }]) => [key, grad!])) }
    },
    { tokens: type, labels: type },
  )
  const made = nodes.filter(({ op }) => !op.isView).flatMap(({ outputs }) => outputs)
  const largest = Math.max(...made.map(({ type: { shape } }) => 4 * countElements(shape)))
  return { peak: plan.peakBytes, largest }
}

describe('memory of the loss over 49,152 tokens', () => {
  test('loss stores neither all logits nor a gradient of the table when that is frozen', () => {
    const logits = positions * small.vocabSize * 4
    const plain = planOf(true)
    const checkpointed = planOf(true, true)
    console.log(
      `${logits / MiB} MiB of logits; peak ${plain.peak / MiB}, with checkpoints ${checkpointed.peak / MiB} MiB`,
    )
    expect(plain.largest).toBe(logits / 8)
    expect(checkpointed.largest).toBe(logits / 8)
    expect(plain.peak).toBeLessThan(logits)
    expect(checkpointed.peak).toBeLessThan(plain.peak)
  })

  test('loss makes the gradient of the table when that is trained', () => {
    expect(planOf(false).largest).toBe(small.vocabSize * small.hiddenSize * 4)
  })
})

test('loss refuses sequences of one token, which have no next one', () => {
  const type = tensorType([2, 1], 'i32')
  const trace = () =>
    prepare(planningTarget, ({ x }) => ({ loss: new CausalLm(tiny).loss(x, x) }), { x: type })
  expect(trace).toThrow(/\[batch, T\] with T from 2 to 8, got \[2, 1\]/)
})

test.each([false, true])(
  'loss keeps attention within segments, checkpoint %s',
  async (checkpoint) => {
    manualSeed(3)
    const model = new CausalLm(tiny, { checkpoint })
    const [tokens, segments] = [
      [1, 2, 3, 4, 5, 6, 6, 0],
      [0, 0, 0, 1, 1, 1, 1, -1],
    ].map((row) => Int32Array.from(row))
    const results = async (
      own: Int32Array<ArrayBuffer>,
      labels: Int32Array<ArrayBuffer>,
      numbers: Int32Array<ArrayBuffer>,
    ) => {
      const type = tensorType([1, own.length], 'i32')
      const program = await compile(
        (given) => {
          const loss = model.loss(given.tokens, given.labels, { segments: given.segments })
          loss.backward()
          return { loss, grad: model.model.embedTokens.weight.grad! }
        },
        { tokens: type, labels: type, segments: type },
        { device: 'reference' },
      )
      const { loss, grad } = await program.run({ tokens: own, labels, segments: numbers })
      program.destroy()
      return [loss[0], ...grad]
    }
    const labels = Int32Array.of(-100, 2, 3, -100, 5, 6, 6, -100)
    const packed = await results(tokens, labels, segments)
    const parts = [
      [0, 3],
      [3, 7],
    ] as const
    const alone = await Promise.all(
      parts.map(([from, to]) => {
        const own = tokens.slice(from, to)
        return results(own, own, segments.slice(from, to))
      }),
    )
    for (const [i, value] of packed.entries())
      expect(value).toBeCloseTo((2 * alone[0][i] + 3 * alone[1][i]) / 5, 6)
  },
)

test('a tied model has no lm_head.weight, and ignores it in a state', async () => {
  const model = new CausalLm(tiny)
  const state = await model.stateDict()
  expect(Object.keys(state)).not.toContain('lm_head.weight')
  const table = state['model.embed_tokens.weight']
  const loaded = new CausalLm(tiny).loadStateDict({ ...state, 'lm_head.weight': table })
  expect(loaded).toEqual({ missingKeys: [], unexpectedKeys: [] })
  const own = new CausalLm({ ...tiny, tieWordEmbeddings: false })
  expect(() => own.loadStateDict(state)).toThrow(/missing \[lm_head.weight\]/)
})

test.each([
  [{ numAttentionHeads: 4, numKeyValueHeads: 3 }, /multiple of numKeyValueHeads, 3, got 4/],
  [
    { architecture: 'GemmaForCausalLM' },
    /architecture of config must be one of 'LlamaForCausalLM'/,
  ],
  [{ headDim: 3 }, /width must be an even number above 0, got 3/],
  [{ rope_theta: 1 }, /got "rope_theta"/],
  [
    {
      ropeScaling: {
        factor: 8,
        lowFreqFactor: 4,
        highFreqFactor: 1,
        originalMaxPositionEmbeddings: 64,
      },
    },
    /highFreqFactor must be above lowFreqFactor, got 1/,
  ],
])('CausalLm refuses %o', (wrong, message) => {
  expect(() => new CausalLm({ ...tiny, ...wrong } as CausalLmConfig)).toThrow(message)
})
