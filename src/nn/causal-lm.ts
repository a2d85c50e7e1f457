import { silu } from '../graph/functions/activations.ts'
import { attend } from '../graph/functions/attention.ts'
import { checkpoint } from '../graph/functions/checkpoint.ts'
import { type ChunkedLossOptions, chunkedCrossEntropy } from '../graph/functions/chunked-loss.ts'
import { embedding } from '../graph/functions/index-ops.ts'
import { linear } from '../graph/functions/linear.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import { ShapeError } from '../util/errors.ts'
import { checkOptions, checkRecord } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { formatShape, sameShape } from '../util/shape.ts'
import { RotaryEmbedding } from './attention.ts'
import { type CausalLmConfig, checkConfig } from './causal-lm-config.ts'
import { ModuleList } from './containers.ts'
import { normal } from './init.ts'
import { Linear } from './layers.ts'
import { type LoadOptions, type LoadResult, Module } from './module.ts'
import { RMSNorm } from './normalization.ts'
import { showSettings } from './show-settings.ts'
import type { LoadableState } from './state-values.ts'

/** How rows of tokens see each other: in sequences of a batch, or after tokens that a cache has. */
export interface Sequences {
  /** Turns queries or keys by their positions. shape: x [rows, heads * headDim] -> the same */
  turn(x: Tensor, heads: number): Tensor
  /** shape: as `attend` with layout `tokens` */
  attend(query: Tensor, key: Tensor, value: Tensor, sizes: HeadSizes): Tensor
}

interface HeadSizes {
  readonly heads: number
  readonly keyHeads: number
  readonly width: number
}

/** The table of tokens. shape: tokens[..] of i32 -> [.., width] */
class TokenTable extends Module {
  readonly weight: Parameter

  constructor(rows: number, width: number) {
    super()
    this.weight = normal([rows, width], 0.02)
  }

  forward(tokens: Tensor): Tensor {
    return embedding(tokens, this.weight)
  }
}

/** Grouped-query attention: groups of query heads share a head of keys and values. */
class Attention extends Module {
  readonly qProj: Linear
  readonly kProj: Linear
  readonly vProj: Linear
  readonly oProj: Linear
  readonly qNorm: RMSNorm | undefined
  readonly kNorm: RMSNorm | undefined
  readonly #width: number

  constructor(config: CausalLmConfig) {
    super()
    const { hiddenSize, numAttentionHeads, numKeyValueHeads, headDim, architecture } = config
    const bias = architecture === 'Qwen2ForCausalLM'
    this.qProj = new Linear(hiddenSize, numAttentionHeads * headDim, { bias })
    this.kProj = new Linear(hiddenSize, numKeyValueHeads * headDim, { bias })
    this.vProj = new Linear(hiddenSize, numKeyValueHeads * headDim, { bias })
    this.oProj = new Linear(numAttentionHeads * headDim, hiddenSize, { bias: false })
    const norm = () =>
      architecture === 'Qwen3ForCausalLM'
        ? new RMSNorm(headDim, { eps: config.rmsNormEps })
        : undefined
    this.qNorm = norm()
    this.kNorm = norm()
    this.#width = headDim
  }

  /** shape: x [rows, hiddenSize] -> the same */
  forward(x: Tensor, sequences: Sequences): Tensor {
    const width = this.#width
    const turned = (projected: Tensor, norm: RMSNorm | undefined): Tensor => {
      const [rows, columns] = projected.shape
      const heads = columns / width
      const normed = norm?.forward(projected.reshape([rows * heads, width]))
      return sequences.turn(normed?.reshape([rows, columns]) ?? projected, heads)
    }
    const query = turned(this.qProj.forward(x), this.qNorm)
    const key = turned(this.kProj.forward(x), this.kNorm)
    // Of tensor parallel ranks each has some of the heads.
    const [heads, keyHeads] = [query, key].map(({ shape }) => shape[1] / width)
    const value = this.vProj.forward(x)
    return this.oProj.forward(sequences.attend(query, key, value, { heads, keyHeads, width }))
  }
}

/** SwiGLU. source: Shazeer, arXiv 2002.05202. */
class Mlp extends Module {
  readonly gateProj: Linear
  readonly upProj: Linear
  readonly downProj: Linear

  constructor({ hiddenSize, intermediateSize }: CausalLmConfig) {
    super()
    this.gateProj = new Linear(hiddenSize, intermediateSize, { bias: false })
    this.upProj = new Linear(hiddenSize, intermediateSize, { bias: false })
    this.downProj = new Linear(intermediateSize, hiddenSize, { bias: false })
  }

  forward(x: Tensor): Tensor {
    return this.downProj.forward(silu(this.gateProj.forward(x)).mul(this.upProj.forward(x)))
  }
}

class DecoderLayer extends Module {
  readonly selfAttn: Attention
  readonly mlp: Mlp
  readonly inputLayernorm: RMSNorm
  readonly postAttentionLayernorm: RMSNorm

  constructor(config: CausalLmConfig) {
    super()
    const { hiddenSize, rmsNormEps: eps } = config
    this.selfAttn = new Attention(config)
    this.mlp = new Mlp(config)
    this.inputLayernorm = new RMSNorm(hiddenSize, { eps })
    this.postAttentionLayernorm = new RMSNorm(hiddenSize, { eps })
  }

  /** shape: as Attention's */
  forward(x: Tensor, sequences: Sequences): Tensor {
    const attended = x.add(this.selfAttn.forward(this.inputLayernorm.forward(x), sequences))
    return attended.add(this.mlp.forward(this.postAttentionLayernorm.forward(attended)))
  }
}

/** All but the output layer. */
class Body extends Module {
  readonly embedTokens: TokenTable
  readonly layers: ModuleList<DecoderLayer>
  readonly norm: RMSNorm
  readonly rotaryEmb: RotaryEmbedding
  readonly #isCheckpointed: boolean

  constructor(config: CausalLmConfig, isCheckpointed: boolean) {
    super()
    const { vocabSize, hiddenSize, numHiddenLayers, ropeTheta: base, ropeScaling } = config
    this.embedTokens = new TokenTable(vocabSize, hiddenSize)
    this.layers = new ModuleList(
      Array.from({ length: numHiddenLayers }, () => new DecoderLayer(config)),
    )
    this.norm = new RMSNorm(hiddenSize, { eps: config.rmsNormEps })
    const maxPositions = config.maxPositionEmbeddings
    this.rotaryEmb = new RotaryEmbedding(config.headDim, {
      maxPositions,
      base,
      scaling: ropeScaling,
    })
    this.#isCheckpointed = isCheckpointed
  }

  /**
   * `sequencesOf`: how the rows see each other in the n-th block; default: those of a sample its earlier ones.
   *
   * shape: tokens [batch, T] of i32 -> [batch * T, hiddenSize]
   */
  forward(tokens: Tensor, sequencesOf: (layer: number) => Sequences = this.whole(tokens)): Tensor {
    const embedded = this.embedTokens.forward(tokens)
    let x = embedded.reshape([tokens.count, embedded.shape[2]])
    for (const [n, layer] of [...this.layers].entries()) {
      const forward = (input: Tensor) => layer.forward(input, sequencesOf(n))
      x = this.#isCheckpointed ? checkpoint(forward, x) : forward(x)
    }
    return this.norm.forward(x)
  }

  /** Each sample a sequence, or each of its `segments`. RoPE is relative, so that positions go on from one to the next. */
  whole({ shape: [batch, length] }: Tensor, segments?: Tensor): () => Sequences {
    const [own, other] = [
      [length, 1],
      [1, length],
    ].map((shape) => segments?.reshape([batch, 1, ...shape]))
    const attnMask = own && other && own.eq(other)
    const options = { isCausal: true, ...(attnMask && { attnMask }) }
    const sequences: Sequences = {
      turn: (x, heads) =>
        this.rotaryEmb.forward(x.reshape([batch, length, x.shape[1]]), { heads }).reshape(x.shape),
      attend: (query, key, value, sizes) =>
        attend([query, key, value], 'tokens', { batch, ...sizes }, options),
    }
    return () => sequences
  }
}

export interface CausalLmOptions {
  /** True if backward recomputes each block instead of keeping its intermediates; default false. See `checkpoint`. */
  checkpoint?: boolean
}

export interface CausalLmLossOptions extends ChunkedLossOptions {
  /**
   * Numbers of the texts that share a row: tokens attend to those of an equal number alone. Default: a row is one text. cost: attention without
   * flash, on a mask of T^2. shape: [batch, T] of i32
   */
  segments?: Tensor
}

/**
 * A language model with the structure and the state-dict keys of LlamaForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM in transformers.
 *
 * shape: tokens [batch, T] of i32, T up to `maxPositionEmbeddings` -> logits [batch, T, vocabSize]
 * A model whose output layer is tied has no key `lm_head.weight`; one in a state that is loaded is ignored.
 */
export class CausalLm extends Module {
  declare readonly config: CausalLmConfig
  /** @internal All but the output layer. */
  readonly model: Body
  readonly lmHead: Linear | undefined

  constructor(config: CausalLmConfig, options: CausalLmOptions = {}) {
    super()
    checkConfig('CausalLm', config)
    const { checkpoint = false } = checkOptions('CausalLm', options, { checkpoint: 'flag' })
    showSettings(this, { config: Object.freeze({ ...config }) })
    this.model = new Body(config, checkpoint)
    this.lmHead = config.tieWordEmbeddings
      ? undefined
      : new Linear(config.hiddenSize, config.vocabSize, { bias: false })
  }

  forward(tokens: Tensor): Tensor {
    this.#check(tokens)
    return this.head(this.model.forward(tokens)).reshape([...tokens.shape, this.config.vocabSize])
  }

  /**
   * Returns the mean loss of each next token; the logits are never stored as a whole.
   *
   * shape: tokens and labels [batch, T] of i32 -> []. Labels lie where their tokens are, as in transformers: the prediction after token t is
   * compared with label t + 1, so that labels are the tokens, with `ignoreIndex` where a token has no loss.
   * cost: as `chunkedCrossEntropy`.
   */
  loss(tokens: Tensor, labels: Tensor, options: CausalLmLossOptions = {}): Tensor {
    this.#check(tokens, 2)
    const known = { segments: true, ignoreIndex: true, chunk: true } as const
    const { segments, ...others } = checkOptions('CausalLm', options, known)
    mustBeTensor('CausalLm', { labels }, { segments })
    for (const [name, given] of Object.entries({ labels, segments: segments ?? tokens })) {
      if (sameShape(given.shape, tokens.shape)) continue
      throw new ShapeError(
        'shape.mismatch',
        `CausalLm: ${name} must be ${formatShape(tokens.shape)} as the tokens are, got ${formatShape(given.shape)}. Pass one for each token.`,
      )
    }
    const [batch, length] = tokens.shape
    const { hiddenSize } = this.config
    const sequences = this.model.whole(tokens, segments)
    const hidden = this.model.forward(tokens, sequences).reshape([batch, length, hiddenSize])
    return chunkedCrossEntropy(
      hidden.narrow(1, 0, length - 1).reshape([batch * (length - 1), hiddenSize]),
      (rows) => this.head(rows),
      labels.narrow(1, 1, length - 1).reshape([batch * (length - 1)]),
      others,
    )
  }

  /** @internal The output layer. shape: x [rows, hiddenSize] -> [rows, vocabSize] */
  head(x: Tensor): Tensor {
    return this.lmHead ? this.lmHead.forward(x) : linear(x, this.model.embedTokens.weight)
  }

  #check(tokens: Tensor, min = 1): void {
    mustBeTensor('CausalLm', { tokens })
    const { maxPositionEmbeddings: max } = this.config
    const [, length] = tokens.shape
    if (tokens.shape.length === 2 && length >= min && length <= max) return
    throw new ShapeError(
      'shape.mismatch',
      `CausalLm: tokens must be [batch, T] with T from ${min} to ${max}, got ${formatShape(tokens.shape)}. Cut or pad the sequences.`,
    )
  }

  /** @internal As of any module. A tied output layer's weight, and the angles that old files hold, are ignored. */
  override prepareLoad(state: LoadableState, options: LoadOptions = {}): () => LoadResult {
    checkRecord('loadStateDict', 'state', state)
    const isOwn = (key: string) =>
      !key.endsWith('.rotary_emb.inv_freq') && (this.lmHead || key !== 'lm_head.weight')
    const own = Object.entries(state).filter(([key]) => isOwn(key))
    return super.prepareLoad(Object.fromEntries(own), options)
  }
}

countArguments(CausalLm, { loss: 3, prepareLoad: 2 })
