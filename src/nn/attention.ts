import { attend, isBoolean } from '../graph/functions/attention.ts'
import { hiding } from '../graph/functions/composed-attention.ts'
import { where } from '../graph/functions/elementwise.ts'
import { indexSelect } from '../graph/functions/index-ops.ts'
import { linear } from '../graph/functions/linear.ts'
import {
  checkRopeScaling,
  type RopeScaling,
  rotaryEmbedding,
  rotaryTable,
} from '../graph/functions/rotary.ts'
import { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { layerOfCall, nextRandomLayer } from '../graph/trace/random.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import { ShapeError } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'
import {
  checkFlags,
  checkNumber,
  checkOptions,
  isCount,
  isShare,
  type OptionNames,
} from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { formatShape, sameShape } from '../util/shape.ts'
import { checkSizes } from './check-sizes.ts'
import { filled, uniform } from './init.ts'
import { Linear } from './layers.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

export interface MultiheadAttentionOptions {
  /** Fraction of attention probabilities dropped in training; default 0. */
  dropout?: number
  /** True if the projections have biases; default true. */
  bias?: boolean
  /** True if tensors are [N, L, E]; default false: [L, N, E]. */
  batchFirst?: boolean
}

export interface MultiheadAttentionInputs {
  /** Default: the query. */
  key?: Tensor
  /** Default: the key. */
  value?: Tensor
  /**
   * [L, S], [N * heads, L, S] or a shape that broadcasts to it, such as [N, 1, L, S].
   *
   * Integers and results of comparisons (`i.lt(j)`): nonzero where a key is masked, like bool in PyTorch's module. Other f32: added to the
   * scores; a mask that requires a gradient gets one, as in `scaledDotProductAttention`.
   */
  attnMask?: Tensor
  /** [N, S]: nonzero where a key is ignored, or f32 added to the scores. With `attnMask`, a key is seen only where both allow it. */
  keyPaddingMask?: Tensor
  isCausal?: boolean
}

const inputNames: OptionNames<MultiheadAttentionInputs> = {
  key: true,
  value: true,
  attnMask: true,
  keyPaddingMask: true,
  isCausal: 'flag',
}

/**
 * Multi-head attention between an input and an output projection, with the state-dict keys of torch.nn.MultiheadAttention.
 *
 * shape: query [L, N, embedDim], key and value [S, N, embedDim] -> as query; [N, L, embedDim] with `batchFirst`.
 * Returns only the output: the probabilities are not stored (except for a mask that requires a gradient).
 */
export class MultiheadAttention extends Module {
  readonly inProjWeight: Parameter
  readonly inProjBias: Parameter | undefined
  readonly outProj: Linear
  readonly #embedDim: number
  readonly #heads: number
  readonly #dropout: number
  readonly #isBatchFirst: boolean
  readonly #layer = nextRandomLayer()

  constructor(embedDim: number, numHeads: number, options: MultiheadAttentionOptions = {}) {
    super()
    checkSizes('MultiheadAttention', { embedDim, numHeads }, 1)
    if (embedDim % numHeads !== 0) {
      throw new ShapeError(
        'shape.unsupported',
        `MultiheadAttention: embedDim must be a multiple of numHeads, ${quoted(numHeads)}, got ${quoted(embedDim)}. Choose another number of heads.`,
      )
    }
    checkOptions('MultiheadAttention', options, { dropout: true, bias: true, batchFirst: true })
    checkFlags('MultiheadAttention', options, 'bias', 'batchFirst')
    checkNumber('MultiheadAttention', 'dropout', options.dropout, isShare, 'within 0..1')
    this.#embedDim = embedDim
    this.#heads = numHeads
    this.#dropout = options.dropout ?? 0
    this.#isBatchFirst = options.batchFirst ?? false
    const { dropout = 0, batchFirst = false } = options
    showSettings(this, { embedDim, numHeads, dropout, batchFirst })
    const hasBias = options.bias ?? true
    // Xavier's uniform bound of the joint projection, and zero biases, as in torch.nn.MultiheadAttention.
    this.inProjWeight = uniform([3 * embedDim, embedDim], Math.sqrt(6 / (4 * embedDim)))
    this.inProjBias = hasBias ? filled([3 * embedDim], 0) : undefined
    this.outProj = new Linear(embedDim, embedDim, { bias: hasBias })
    this.outProj.bias?.assign(new Float32Array(embedDim))
  }

  /** shape: as for the class. One sample may omit the batch dimension: query [L, embedDim], keys [S, embedDim], mask [S]. */
  forward(query: Tensor, inputs: MultiheadAttentionInputs = {}): Tensor {
    const { isCausal: _, ...tensors } = checkOptions(
      'MultiheadAttention.forward',
      inputs,
      inputNames,
      'inputs',
    )
    mustBeTensor('MultiheadAttention', { query }, tensors)
    if (query.shape.length !== 2) return this.#attend(query, inputs)
    const axis = this.#isBatchFirst ? 0 : 1
    // A tensor that is given twice stays one: then it is self-attention.
    const lifted = new Map<Tensor, Tensor>()
    const lift = (x: Tensor) => lifted.get(x) ?? lifted.set(x, x.unsqueeze(axis)).get(x)!
    const { key, value, keyPaddingMask } = inputs
    const attended = this.#attend(lift(query), {
      ...inputs,
      ...(key && { key: lift(key) }),
      ...(value && { value: lift(value) }),
      ...(keyPaddingMask && { keyPaddingMask: keyPaddingMask.unsqueeze(0) }),
    })
    return attended.squeeze(axis)
  }

  #attend(query: Tensor, inputs: MultiheadAttentionInputs): Tensor {
    // Null is PyTorch's None.
    const key = inputs.key ?? query
    const value = inputs.value ?? key
    const width = this.#embedDim
    const wrong = [query, key, value].find(({ shape }) => shape.length !== 3 || shape[2] !== width)
    const [sequenceAxis, batchAxis] = this.#isBatchFirst ? [1, 0] : [0, 1]
    if (wrong || key.shape[batchAxis] !== query.shape[batchAxis]) {
      throw new ShapeError(
        'shape.mismatch',
        `MultiheadAttention: query, key and value must be ${this.#isBatchFirst ? '[N, L, ' : '[L, N, '}${width}] with the same N, got ${[query, key, value].map(({ shape }) => formatShape(shape)).join(', ')}. Check the order of the dimensions.`,
      )
    }
    const rows = (x: Tensor) => x.reshape([-1, width])
    const project = (x: Tensor, first: number, count: number) =>
      linear(
        rows(x),
        this.inProjWeight.narrow(0, first * width, count * width),
        this.inProjBias?.narrow(0, first * width, count * width),
      )
    const isSelf = query === key && key === value
    const projections = isSelf
      ? [linear(rows(query), this.inProjWeight, this.inProjBias)]
      : [project(query, 0, 1), project(key, 1, 1), project(value, 2, 1)]
    const batch = query.shape[batchAxis]
    const attended = attend(
      projections,
      isSelf ? 'packed' : 'tokens',
      {
        batch,
        heads: this.#heads,
        width: width / this.#heads,
        isSequenceFirst: !this.#isBatchFirst,
      },
      {
        isCausal: inputs.isCausal,
        ...(this.training &&
          this.#dropout > 0 && {
            dropoutP: this.#dropout,
            maskIndex: layerOfCall('MultiheadAttention', this.#layer),
          }),
        ...jointMask(inputs, batch, this.#heads, key.shape[sequenceAxis]),
      },
    )
    return this.outProj.forward(attended).reshape(query.shape)
  }
}

/** Both masks as one. errors: `shape.mismatch` for a padding mask that is not [batch, keys]. */
function jointMask(
  { attnMask, keyPaddingMask }: MultiheadAttentionInputs,
  batch: number,
  heads: number,
  keys: number,
): { attnMask?: Tensor; isExclusionMask?: boolean } {
  if (keyPaddingMask && !sameShape(keyPaddingMask.shape, [batch, keys])) {
    throw new ShapeError(
      'shape.mismatch',
      `MultiheadAttention: keyPaddingMask must be ${formatShape([batch, keys])}, got ${formatShape(keyPaddingMask.shape)}. Pass one row per sample.`,
    )
  }
  const masks = [
    attnMask && (attnMask.shape.length === 3 ? byHeads(attnMask, batch, heads) : attnMask),
    keyPaddingMask?.reshape([batch, 1, 1, keys]),
  ].filter((mask) => !!mask)
  const hidden = masks.filter(isBoolean)
  const added = masks.filter((mask) => !isBoolean(mask))
  if (masks.length < 2) return { attnMask: masks[0], isExclusionMask: hidden.length > 0 }
  if (added.length === 0) {
    return { attnMask: hidden[0].ne(0).maximum(hidden[1].ne(0)), isExclusionMask: true }
  }
  return {
    attnMask: added.length > 1 ? added[0].add(added[1]) : where(hidden[0], hiding, added[0]),
  }
}

/** A mask [batch * heads, L, S], PyTorch's form, as [batch, heads, L, S]. */
function byHeads(mask: Tensor, batch: number, heads: number): Tensor {
  const [first, L, S] = mask.shape
  return first === batch * heads ? mask.reshape([batch, heads, L, S]) : mask
}

const isAbove0 = (value: number) => value > 0 && Number.isFinite(value)

export interface RotaryEmbeddingOptions {
  /** Number of positions in the table; default 2048. */
  maxPositions?: number
  /** Angles are position * base^(-2 i / width); default 10,000. */
  base?: number
  /** True if neighbouring elements are paired; default: element i is paired with i + width / 2, as in GPT-NeoX and Llama. */
  isInterleaved?: boolean
  /** Slows the angles for longer sequences than those of pretraining; default: no. */
  scaling?: RopeScaling
}

/** Rotary position embedding of queries or keys, of `heads` side by side. shape: [..., T, heads * width] -> the same */
export class RotaryEmbedding extends Module {
  readonly #table: ModuleBuffer
  readonly #isInterleaved: boolean

  constructor(width: number, options: RotaryEmbeddingOptions = {}) {
    super()
    const known = { maxPositions: true, base: true, isInterleaved: true, scaling: true } as const
    checkOptions('RotaryEmbedding', options, known)
    const { maxPositions = 2048, base = 10_000 } = options
    const isEven = (size: number) => isCount(size) && size % 2 === 0
    checkNumber('RotaryEmbedding', 'width', width, isEven, 'an even number above 0', true)
    checkFlags('RotaryEmbedding', options, 'isInterleaved')
    checkNumber('RotaryEmbedding', 'maxPositions', maxPositions, isCount, 'a whole number above 0')
    checkNumber('RotaryEmbedding', 'base', base, isAbove0, 'a finite number above 0')
    checkRopeScaling('RotaryEmbedding', options.scaling)
    this.#isInterleaved = options.isInterleaved ?? false
    const table = rotaryTable(width, maxPositions, base, options.scaling)
    this.#table = this.registerBuffer(
      'table',
      new ModuleBuffer([maxPositions, width / 2, 2], table),
      { persistent: false },
    )
  }

  /** `positions`: of the rows, [T] of i32; default: 0, 1, … */
  forward(x: Tensor, options: { heads?: number; positions?: Tensor } = {}): Tensor {
    const where = 'RotaryEmbedding.forward'
    const known = { heads: 'size', positions: true } as const
    const { heads = 1, positions } = checkOptions(where, options, known)
    mustBeTensor(where, { x }, { positions })
    const table = positions ? indexSelect(this.#table, 0, positions) : this.#table
    return rotaryEmbedding(x, table, { isInterleaved: this.#isInterleaved, heads })
  }
}

countArguments(
  MultiheadAttention,
  { forward: 2 },
  { forward: 'write forward(query, { key, value })' },
)
countArguments(RotaryEmbedding, { forward: 2 })
