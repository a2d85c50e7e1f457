import { checkRopeScaling, type RopeScaling } from '../graph/functions/rotary.ts'
import { ShapeError } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'
import { checkChoice, checkFlag, checkNumber, checkOptions } from '../util/options.ts'
import { checkSizes } from './check-sizes.ts'

/** Structures that `CausalLm` has, by the names of their classes in transformers. */
const architectures = ['LlamaForCausalLM', 'Qwen2ForCausalLM', 'Qwen3ForCausalLM'] as const

/** A published model's config.json, in camelCase. */
export interface CausalLmConfig {
  /** Qwen2 has biases of queries, keys and values; Qwen3 normalizes queries and keys. */
  architecture: (typeof architectures)[number]
  vocabSize: number
  /** Size of a token's vector. */
  hiddenSize: number
  /** Size between the linear layers of a block. */
  intermediateSize: number
  numHiddenLayers: number
  numAttentionHeads: number
  /** Heads of keys and values, a divisor of `numAttentionHeads`. */
  numKeyValueHeads: number
  /** Size of a head, an even number; it may differ from hiddenSize / numAttentionHeads. */
  headDim: number
  /** Longest sequence. */
  maxPositionEmbeddings: number
  rmsNormEps: number
  /** Base of the rotary position embedding. */
  ropeTheta: number
  ropeScaling?: RopeScaling
  /** True if the output layer has the table of tokens as its weight. */
  tieWordEmbeddings: boolean
}

const isAbove0 = (value: number) => value > 0 && Number.isFinite(value)
const above0 = 'a finite number above 0'

/** errors: `config.invalid`; `shape.unsupported` for heads that groups cannot share. */
export function checkConfig(where: string, config: CausalLmConfig): void {
  checkOptions(
    where,
    config,
    {
      architecture: true,
      vocabSize: true,
      hiddenSize: true,
      intermediateSize: true,
      numHiddenLayers: true,
      numAttentionHeads: true,
      numKeyValueHeads: true,
      headDim: true,
      maxPositionEmbeddings: true,
      rmsNormEps: true,
      ropeTheta: true,
      ropeScaling: true,
      tieWordEmbeddings: true,
    },
    'config',
  )
  const { architecture, rmsNormEps, ropeTheta, ropeScaling, tieWordEmbeddings, ...sizes } = config
  checkChoice(
    where,
    'architecture of config',
    architecture ?? '',
    architectures as readonly string[],
  )
  checkSizes(where, sizes, 1)
  checkNumber(where, 'rmsNormEps', rmsNormEps, isAbove0, above0, true)
  checkNumber(where, 'ropeTheta', ropeTheta, isAbove0, above0, true)
  checkRopeScaling(where, ropeScaling)
  checkFlag(where, 'tieWordEmbeddings', tieWordEmbeddings)
  const { numAttentionHeads, numKeyValueHeads } = sizes
  if (numAttentionHeads % numKeyValueHeads === 0) return
  throw new ShapeError(
    'shape.unsupported',
    `${where}: numAttentionHeads must be a multiple of numKeyValueHeads, ${quoted(numKeyValueHeads)}, got ${quoted(numAttentionHeads)}. Take both from the model's config.json.`,
  )
}
