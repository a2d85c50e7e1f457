import { gelu } from '../graph/functions/activations.ts'
import { packedAttention } from '../graph/functions/attention.ts'
import { checkpoint } from '../graph/functions/checkpoint.ts'
import { linear } from '../graph/functions/linear.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { layerOfCall, nextRandomLayer } from '../graph/trace/random.ts'
import { mustBeTensor, product, type Tensor } from '../graph/trace/tensor.ts'
import { ShapeError, TabringError } from '../util/errors.ts'
import { checkNumber, checkOptions, checkRecord, isCount, isShare } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { formatShape, maxElements } from '../util/shape.ts'
import { ModuleList } from './containers.ts'
import { Dropout } from './dropout.ts'
import { Embedding } from './embedding.ts'
import { filled, normal, normalNumbers } from './init.ts'
import { type LoadOptions, type LoadResult, Module } from './module.ts'
import { LayerNorm } from './normalization.ts'
import { showSettings } from './show-settings.ts'
import type { LoadableState } from './state-values.ts'

export interface GptConfig {
  /** Number of tokens; GPT-2 has 50,257. */
  vocabSize: number
  /** Longest sequence; GPT-2 has 1024. */
  blockSize: number
  /** Number of blocks; the smallest GPT-2 has 12. */
  layers: number
  /** Number of attention heads; the smallest GPT-2 has 12. */
  heads: number
  /** Size of a token's vector, a multiple of `heads`; the smallest GPT-2 has 768. */
  width: number
  /** Dropout of embeddings, probabilities and residuals in training; default 0 (GPT-2 was trained with 0.1). */
  dropout?: number
  /** Added to variances; default 1e-5. */
  layerNormEps?: number
  /** True if backward recomputes each block instead of keeping its intermediates; default false. See `checkpoint`. */
  checkpoint?: boolean
}

const isSize = (value: number) => isCount(value) && value <= maxElements

/** errors: `config.invalid`. */
function checkConfig(config: GptConfig): void {
  const sizes = {
    vocabSize: true,
    blockSize: true,
    layers: true,
    heads: true,
    width: true,
  } as const
  const known = { ...sizes, dropout: true, layerNormEps: true, checkpoint: 'flag' } as const
  checkOptions('gpt', config, known, 'config')
  const given: Partial<GptConfig> = config
  for (const name of Object.keys(sizes) as (keyof typeof sizes)[]) {
    const range = `a whole number from 1 to ${maxElements}`
    checkNumber('gpt', name, given[name], isSize, range, true)
  }
  checkNumber('gpt', 'dropout', config.dropout, isShare, 'within 0..1')
  const isPositive = (value: number) => Number.isFinite(value) && value > 0
  checkNumber('gpt', 'layerNormEps', config.layerNormEps, isPositive, 'a finite number above 0')
}

/** Standard deviation of GPT-2's first weights. */
const deviation = 0.02

/** GPT-2's linear layer: y = x W + b with W [inFeatures, outFeatures]. shape: [R, inFeatures] -> [R, outFeatures] */
export class Conv1D extends Module {
  readonly weight: Parameter
  readonly bias: Parameter
  /** Equal parts of the output that ranks divide one by one: queries, keys and values are 3. */
  blocks = 1

  constructor(inFeatures: number, outFeatures: number, weightDeviation = deviation) {
    super()
    this.weight = normal([inFeatures, outFeatures], weightDeviation)
    this.bias = filled([outFeatures], 0)
  }

  forward(x: Tensor): Tensor {
    return product(x, this.weight, 'nn', this.bias)
  }
}

/** Layers that add to the residual begin smaller, since their sum grows with depth. */
const residualDeviation = ({ layers }: GptConfig) => deviation / Math.sqrt(2 * layers)

class Attention extends Module {
  // Names as in the state dict.
  readonly c_attn: Conv1D
  readonly c_proj: Conv1D
  readonly #headWidth: number
  readonly #heads: number
  readonly #dropoutP: number
  readonly #layer = nextRandomLayer()
  readonly resid_dropout: Dropout

  constructor(config: GptConfig) {
    super()
    const { width, heads, dropout = 0 } = config
    this.c_attn = new Conv1D(width, 3 * width)
    // Queries, keys and values.
    this.c_attn.blocks = 3
    this.c_proj = new Conv1D(width, width, residualDeviation(config))
    this.#headWidth = width / heads
    this.#heads = heads
    this.#dropoutP = dropout
    this.resid_dropout = new Dropout(dropout)
  }

  /** shape: x [batch * T, width], samples one after the other. errors: `shape.mismatch` without the number of samples. */
  forward(x: Tensor, batch: number): Tensor {
    const drops = this.training && this.#dropoutP > 0
    const projected = this.c_attn.forward(x)
    // Of tensor parallel ranks each has some of the heads.
    const heads = projected.shape[1] / (3 * this.#headWidth)
    if (!Number.isInteger(heads)) {
      throw new TabringError(
        'graph.misuse',
        `gpt: the ranks cannot divide ${this.#heads} heads equally. Choose a number of heads that is a multiple of the ranks.`,
      )
    }
    const attended = packedAttention(
      projected,
      { batch, heads },
      {
        isCausal: true,
        ...(drops && { dropoutP: this.#dropoutP, maskIndex: layerOfCall('gpt', this.#layer) }),
      },
    )
    return this.resid_dropout.forward(this.c_proj.forward(attended), { samples: batch })
  }
}

class Mlp extends Module {
  readonly c_fc: Conv1D
  readonly c_proj: Conv1D
  readonly dropout: Dropout

  constructor(config: GptConfig) {
    super()
    const { width, dropout = 0 } = config
    this.c_fc = new Conv1D(width, 4 * width)
    this.c_proj = new Conv1D(4 * width, width, residualDeviation(config))
    this.dropout = new Dropout(dropout)
  }

  /** shape: as Attention's */
  forward(x: Tensor, batch: number): Tensor {
    const hidden = gelu(this.c_fc.forward(x), 'tanh')
    return this.dropout.forward(this.c_proj.forward(hidden), { samples: batch })
  }
}

/** Refuses other numbers: rows do not show where samples end, and one sequence of all would give a plausible result. */
function mustDivide({ shape }: Tensor, batch: number): void {
  if (!(Number.isInteger(batch) && batch >= 0) || (batch > 0 && shape[0] % batch !== 0)) {
    throw new ShapeError(
      'shape.mismatch',
      `gpt: a block needs the number of samples in its rows ${formatShape(shape)}, got ${batch}. Call forward(x, batch); to recompute blocks in backward, create the model with checkpoint: true.`,
    )
  }
}

class Block extends Module {
  readonly ln_1: LayerNorm
  readonly attn: Attention
  readonly ln_2: LayerNorm
  readonly mlp: Mlp

  constructor(config: GptConfig) {
    super()
    const eps = config.layerNormEps ?? 1e-5
    this.ln_1 = new LayerNorm(config.width, { eps })
    this.attn = new Attention(config)
    this.ln_2 = new LayerNorm(config.width, { eps })
    this.mlp = new Mlp(config)
  }

  /** shape: as Attention's */
  forward(x: Tensor, batch: number): Tensor {
    mustDivide(x, batch)
    const attended = x.add(this.attn.forward(this.ln_1.forward(x), batch))
    return attended.add(this.mlp.forward(this.ln_2.forward(attended), batch))
  }
}

class Transformer extends Module {
  readonly wte: Embedding
  readonly wpe: Embedding
  readonly drop: Dropout
  readonly h: ModuleList<Block>
  readonly ln_f: LayerNorm
  readonly #isCheckpointed: boolean

  constructor(config: GptConfig) {
    super()
    this.#isCheckpointed = config.checkpoint ?? false
    const { vocabSize, blockSize, width, dropout = 0, layerNormEps = 1e-5 } = config
    this.wte = tableOf(vocabSize, width)
    this.wpe = tableOf(blockSize, width)
    this.drop = new Dropout(dropout)
    this.h = new ModuleList(Array.from({ length: config.layers }, () => new Block(config)))
    this.ln_f = new LayerNorm(width, { eps: layerNormEps })
  }

  /** shape: tokens [batch, T] of i32 -> [batch * T, width] */
  forward(tokens: Tensor): Tensor {
    const [batch, length] = tokens.shape
    const { weight } = this.wpe
    const [blockSize, width] = weight.shape
    const positions = length === blockSize ? weight : weight.narrow(0, 0, length)
    const embedded = this.drop.forward(this.wte.forward(tokens).add(positions))
    let x = embedded.reshape([batch * length, width])
    for (const block of this.h) {
      const forward = (input: Tensor) => block.forward(input, batch)
      x = this.#isCheckpointed ? checkpoint(forward, x) : forward(x)
    }
    return this.ln_f.forward(x)
  }
}

/** The output layer: scores of all tokens by the token table. */
class Head extends Module {
  readonly weight: Parameter

  constructor(weight: Parameter) {
    super()
    this.weight = weight
  }

  forward(x: Tensor): Tensor {
    const { device } = x
    // The table of the embedding may lie on the device of another stage.
    return linear(x, device ? this.weight.to(device) : this.weight)
  }
}

function tableOf(rows: number, width: number): Embedding {
  const table = new Embedding(rows, width)
  table.weight.assign(normalNumbers(rows * width, deviation))
  return table
}

/** Keys of masks, which files of GPT-2 hold beside the weights. */
const constantMask = /(?:^|\.)h\.\d+\.attn\.(?:bias|masked_bias)$/

/** Where the keys of a file of the body alone begin. */
const ofBody = /^(?:wte|wpe|h|ln_f)\./

/**
 * A language model with GPT-2's structure and state-dict keys; the output layer shares the weight of the token embedding.
 *
 * shape: tokens [batch, T] of i32, T up to `blockSize` -> logits [batch, T, vocabSize]
 * Loads the GPT-2 weights published by Hugging Face as they are, with or without the key prefix `transformer.`. source: Radford et al.,
 * "Language models are unsupervised multitask learners" (2019).
 */
export class Gpt extends Module {
  declare readonly config: GptConfig
  readonly transformer: Transformer
  readonly lmHead: Head

  constructor(config: GptConfig) {
    super()
    checkConfig(config)
    const { width, heads } = config
    if (!(heads > 0) || width % heads !== 0) {
      throw new ShapeError(
        'shape.unsupported',
        `gpt: width must be a multiple of ${heads} heads, got ${width}. Choose another number of heads.`,
      )
    }
    showSettings(this, { config: Object.freeze({ ...config }) })
    this.transformer = new Transformer(config)
    this.lmHead = new Head(this.transformer.wte.weight)
  }

  forward(tokens: Tensor): Tensor {
    mustBeTensor('gpt', { tokens })
    const { blockSize, vocabSize } = this.config
    const [batch, length] = tokens.shape
    if (tokens.shape.length !== 2 || length > blockSize) {
      throw new ShapeError(
        'shape.mismatch',
        `gpt: tokens must be [batch, T] with T up to ${blockSize}, got ${formatShape(tokens.shape)}. Cut the sequences, or create the model with a larger blockSize.`,
      )
    }
    return this.lmHead.forward(this.transformer.forward(tokens)).reshape([batch, length, vocabSize])
  }

  /**
   * @internal As of any module. Keys may omit the prefix `transformer.`, as in published files of the body alone. The constant attention masks
   * in GPT-2 files are ignored.
   */
  override prepareLoad(state: LoadableState, options: LoadOptions = {}): () => LoadResult {
    checkRecord('loadStateDict', 'state', state)
    const own = Object.entries(state).filter(([key]) => !constantMask.test(key))
    return super.prepareLoad(
      Object.fromEntries(
        own.map(([key, tensor]) => [key.replace(ofBody, 'transformer.$&'), tensor]),
      ),
      options,
    )
  }
}

/** Returns a new GPT. */
export const gpt = (config: GptConfig): Gpt => new Gpt(config)

for (const layer of [Conv1D, Gpt]) countArguments(layer, { prepareLoad: 2 })
