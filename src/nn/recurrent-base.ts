import { type RecurrentWeights, recurrentLayer } from '../graph/functions/recurrent.ts'
import { cat, stack, zeros } from '../graph/functions/shape.ts'
import { mustBeTensor, Tensor } from '../graph/trace/tensor.ts'
import { type CellKind, cells } from '../kernels/recurrent/cells.ts'
import { ShapeError } from '../util/errors.ts'
import { isRecord } from '../util/kind-of.ts'
import {
  checkFlags,
  checkNumber,
  checkOptions,
  isShare,
  type OptionNames,
} from '../util/options.ts'
import { byName, countArguments } from '../util/plain-callers.ts'
import { formatShape, type Shape, sameShape } from '../util/shape.ts'
import { checkSizes } from './check-sizes.ts'
import { Dropout } from './dropout.ts'
import { fanInUniform } from './init.ts'
import { Module } from './module.ts'
import { type Lengths, markCleared, type PackedSequence } from './packed-sequence.ts'
import { showSettings } from './show-settings.ts'

export interface RecurrentLayerOptions {
  /** Number of stacked layers. Default 1. */
  numLayers?: number
  /** Default true. */
  bias?: boolean
  /** True if the batch is the first dimension of x and of the output, and the steps the second. Default false. */
  batchFirst?: boolean
  /** Dropout between layers, not after the last. Default 0. */
  dropout?: number
  /** True if a second layer processes each sequence in reverse; the outputs are concatenated. Default false. */
  bidirectional?: boolean
}

export const layerOptions: OptionNames<RecurrentLayerOptions> = {
  numLayers: true,
  bias: true,
  batchFirst: true,
  dropout: true,
  bidirectional: true,
}

/** Initial states, each [layers x directions, B, H]; default 0. */
export interface FirstStates {
  readonly h0?: Tensor
  readonly c0?: Tensor
}

/** Final states, each [layers x directions, B, H]. */
export interface LastStates {
  readonly hn: Tensor
  /** LSTM only. */
  readonly cn: Tensor | undefined
}

/**
 * Makes the parameters of one direction under PyTorch's names, as properties of `module`; all are drawn from ±1/sqrt(hiddenSize).
 *
 * Returns what reads them: a property may hold something else by the time of a call (spectralNorm).
 */
export function addWeights(
  module: Module,
  cell: CellKind,
  suffix: string,
  inputSize: number,
  hiddenSize: number,
  bias: boolean,
): () => RecurrentWeights {
  const rows = cells[cell].gates * hiddenSize
  const add = (name: string, shape: Shape): (() => Tensor) => {
    const property = `${name}${suffix}`
    Object.assign(module, { [property]: fanInUniform(shape, hiddenSize) })
    return () => Reflect.get(module, property) as Tensor
  }
  const ih = add('weight_ih', [rows, inputSize])
  const hh = add('weight_hh', [rows, hiddenSize])
  const biasIh = bias ? add('bias_ih', [rows]) : undefined
  const biasHh = bias ? add('bias_hh', [rows]) : undefined
  return () => ({ ih: ih(), hh: hh(), biasIh: biasIh?.(), biasHh: biasHh?.() })
}

/**
 * Common base of RNN, GRU and LSTM: layers, directions, states, variable lengths. Parameters are called `weight_ih_l0`, ...,
 * `weight_hh_l0_reverse`.
 */
export abstract class RecurrentBase extends Module {
  declare readonly inputSize: number
  declare readonly hiddenSize: number
  declare readonly numLayers: number
  declare readonly batchFirst: boolean
  declare readonly bidirectional: boolean
  readonly #cell: CellKind
  readonly #weights: readonly (() => RecurrentWeights)[]
  /** One between each two layers, each with its own masks. */
  readonly #dropouts: readonly Dropout[]

  constructor(
    cell: CellKind,
    inputSize: number,
    hiddenSize: number,
    options: RecurrentLayerOptions = {},
  ) {
    super()
    checkOptions(new.target.name, options, layerOptions)
    checkNumber(new.target.name, 'dropout', options.dropout, isShare, 'within 0..1')
    checkFlags(new.target.name, options, 'bias', 'batchFirst', 'bidirectional')
    const { numLayers = 1, bias = true, batchFirst = false, bidirectional = false } = options
    checkSizes(new.target.name, { inputSize, hiddenSize, numLayers }, 1)
    const { dropout = 0 } = options
    const sizes = { inputSize, hiddenSize, numLayers }
    showSettings(this, { ...sizes, batchFirst, bidirectional, dropout })
    this.#cell = cell
    const directions = bidirectional ? ['', '_reverse'] : ['']
    this.#weights = Array.from({ length: numLayers }, (_, layer) =>
      directions.map((direction) => {
        const width = layer === 0 ? inputSize : hiddenSize * directions.length
        return addWeights(this, cell, `_l${layer}${direction}`, width, hiddenSize, bias)
      }),
    ).flat()
    this.#dropouts = Array.from(
      { length: dropout > 0 ? numLayers - 1 : 0 },
      () => new Dropout(dropout),
    )
  }

  protected override get entryPoints(): readonly string[] {
    return ['forward', 'withState']
  }

  override children(): [string, Module][] {
    // Dropout has neither parameters nor keys, but follows the mode.
    return this.#dropouts.map((dropout, i) => [`dropout${i}`, dropout])
  }

  /** Returns the outputs of the last layer. shape: [T, B, inputSize] -> [T, B, directions x H], or with B first; B may be omitted. */
  forward(x: Tensor): Tensor {
    return this.withState(x).output
  }

  /**
   * Returns outputs and final states, from the given initial ones; for a packed sequence the outputs are packed too.
   *
   * errors: `shape.mismatch` for states or inputs of the wrong shape.
   */
  withState(x: Tensor, states?: FirstStates): LastStates & { output: Tensor }
  withState(x: PackedSequence, states?: FirstStates): LastStates & { output: PackedSequence }
  withState(
    x: Tensor | PackedSequence,
    states: FirstStates = {},
  ): LastStates & { output: Tensor | PackedSequence } {
    const where = `${this.constructor.name}.withState`
    checkOptions(where, states, { h0: true, c0: true }, 'states')
    if (x instanceof Tensor) return byName(where, this.#run(x, this.batchFirst, undefined, states))
    mustBeTensor(this.constructor.name, { x: isRecord(x) && 'data' in x ? x.data : x })
    const { data, lengths, batchFirst } = x
    const { output, ...last } = this.#run(data, batchFirst, lengths, states)
    return byName(where, { output: { data: markCleared(output), lengths, batchFirst }, ...last })
  }

  /** Masks go by sample, so that any split over ranks draws the same ones: samples must come first while they are made. */
  #dropped(output: Tensor, gap: number, batchFirst: boolean): Tensor {
    const dropout = this.#dropouts[gap]
    if (!dropout?.training) return output
    if (batchFirst) return dropout.forward(output)
    return dropout.forward(output.transpose(0, 1)).transpose(0, 1)
  }

  /** One sequence [T, F], with states [layers x directions, H], without the batch's axis. */
  #runOne(x: Tensor, batchFirst: boolean, { h0, c0 }: FirstStates) {
    const axis = batchFirst ? 0 : 1
    const states = { h0: h0?.unsqueeze(1), c0: c0?.unsqueeze(1) }
    const { output, hn, cn } = this.#run(x.unsqueeze(axis), batchFirst, undefined, states)
    return { output: output.squeeze(axis), hn: hn.squeeze(1), cn: cn?.squeeze(1) }
  }

  #run(
    x: Tensor,
    batchFirst: boolean,
    lengths: Lengths | undefined,
    { h0, c0 }: FirstStates,
  ): LastStates & { output: Tensor } {
    if (x.shape.length === 2 && !lengths) return this.#runOne(x, batchFirst, { h0, c0 })
    const where = this.constructor.name
    if (x.shape.length !== 3 || x.shape[2] !== this.inputSize)
      throw new ShapeError(
        'shape.mismatch',
        `${where}: x must be [${batchFirst ? 'B, T' : 'T, B'}, ${this.inputSize}], got ${formatShape(x.shape)}. Check inputSize.`,
      )
    const B = x.shape[batchFirst ? 0 : 1]
    const directions = this.bidirectional ? 2 : 1
    const stateShape = [this.numLayers * directions, B, this.hiddenSize]
    for (const [name, state] of Object.entries({ h0, c0 }))
      if (state && !sameShape(state.shape, stateShape))
        throw new ShapeError(
          'shape.mismatch',
          `${where}: ${name} must be ${formatShape(stateShape)}, got ${formatShape(state.shape)}. States are [layers x directions, B, hiddenSize].`,
        )
    const nothing = h0 && (c0 || this.#cell !== 'lstm') ? undefined : zeros([B, this.hiddenSize])
    const stateOf = (all: Tensor | undefined, index: number) => all?.select(0, index) ?? nothing!
    const hn: Tensor[] = []
    const cn: Tensor[] = []
    let output = x
    for (let layer = 0; layer < this.numLayers; layer++) {
      const input = layer > 0 ? this.#dropped(output, layer - 1, batchFirst) : output
      const both = Array.from({ length: directions }, (_, direction) => {
        const index = layer * directions + direction
        const result = recurrentLayer(
          input,
          { h0: stateOf(h0, index), c0: this.#cell === 'lstm' ? stateOf(c0, index) : undefined },
          this.#weights[index](),
          { cell: this.#cell, isReverse: direction === 1, batchFirst, lengths },
        )
        hn.push(result.hn)
        if (result.cn) cn.push(result.cn)
        return result.y
      })
      output = directions === 1 ? both[0] : cat(both, 2)
    }
    return { output, hn: stack(hn), cn: cn.length > 0 ? stack(cn) : undefined }
  }
}

countArguments(
  RecurrentBase,
  { withState: 2 },
  { forward: 'initial states go to withState(x, { h0, c0 })' },
)
