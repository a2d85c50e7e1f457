import { type RecurrentWeights, recurrentLayer } from '../graph/functions/recurrent.ts'
import { zeros } from '../graph/functions/shape.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import type { CellKind } from '../kernels/recurrent/cells.ts'
import { checkChoice, checkFlag, checkOptions } from '../util/options.ts'
import { byName, countArguments } from '../util/plain-callers.ts'
import { checkSizes } from './check-sizes.ts'
import { Module } from './module.ts'
import {
  addWeights,
  layerOptions,
  RecurrentBase,
  type RecurrentLayerOptions,
} from './recurrent-base.ts'
import { showSettings } from './show-settings.ts'

export interface RnnOptions extends RecurrentLayerOptions {
  /** Default 'tanh'. */
  nonlinearity?: 'tanh' | 'relu'
}

/** Elman recurrent network, like torch.nn.RNN: h' = tanh(W_ih x + b_ih + W_hh h + b_hh). */
export class RNN extends RecurrentBase {
  constructor(inputSize: number, hiddenSize: number, options: RnnOptions = {}) {
    const known = { ...layerOptions, nonlinearity: true } as const
    const { nonlinearity = 'tanh', ...others } = checkOptions('RNN', options, known)
    checkChoice('RNN', 'nonlinearity', nonlinearity, ['tanh', 'relu'])
    super(nonlinearity, inputSize, hiddenSize, others)
  }
}

/** Gated recurrent units, like torch.nn.GRU. source: Cho et al., arXiv 1406.1078, with the reset gate as in cuDNN. */
export class GRU extends RecurrentBase {
  constructor(inputSize: number, hiddenSize: number, options: RecurrentLayerOptions = {}) {
    super('gru', inputSize, hiddenSize, options)
  }
}

/** Long short-term memory, like torch.nn.LSTM without projections. source: Hochreiter and Schmidhuber, 1997. */
export class LSTM extends RecurrentBase {
  constructor(inputSize: number, hiddenSize: number, options: RecurrentLayerOptions = {}) {
    super('lstm', inputSize, hiddenSize, options)
  }
}

export interface CellOptions {
  /** Default true. */
  bias?: boolean
}

/** One step of one layer, with or without the batch dimension; parameters are called `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`. */
abstract class CellBase extends Module {
  declare readonly inputSize: number
  declare readonly hiddenSize: number
  readonly #cell: CellKind
  readonly #weights: () => RecurrentWeights

  constructor(cell: CellKind, inputSize: number, hiddenSize: number, options: CellOptions) {
    super()
    const { bias = true } = checkOptions(new.target.name, options, { bias: true })
    checkFlag(new.target.name, 'bias', bias)
    checkSizes(new.target.name, { inputSize, hiddenSize })
    showSettings(this, { inputSize, hiddenSize })
    this.#cell = cell
    this.#weights = addWeights(this, cell, '', inputSize, hiddenSize, bias)
  }

  protected step(x: Tensor, h?: Tensor, c?: Tensor): { hn: Tensor; cn: Tensor | undefined } {
    mustBeTensor(this.constructor.name, { x })
    if (x.shape.length === 1) {
      const { hn, cn } = this.step(x.unsqueeze(0), h?.unsqueeze(0), c?.unsqueeze(0))
      return { hn: hn.squeeze(0), cn: cn?.squeeze(0) }
    }
    const nothing =
      h && (c || this.#cell !== 'lstm') ? undefined : zeros([x.shape[0], this.hiddenSize])
    return recurrentLayer(
      x.reshape([1, ...x.shape]),
      { h0: h ?? nothing!, c0: this.#cell === 'lstm' ? (c ?? nothing!) : undefined },
      this.#weights(),
      { cell: this.#cell },
    )
  }
}

/** One step of an RNN. shape: x[B, inputSize], h[B, H] (default 0) -> h'[B, H] */
export class RNNCell extends CellBase {
  constructor(
    inputSize: number,
    hiddenSize: number,
    options: CellOptions & { nonlinearity?: 'tanh' | 'relu' } = {},
  ) {
    const known = { bias: true, nonlinearity: true } as const
    const { nonlinearity = 'tanh', ...others } = checkOptions('RNNCell', options, known)
    checkChoice('RNNCell', 'nonlinearity', nonlinearity, ['tanh', 'relu'])
    super(nonlinearity, inputSize, hiddenSize, others)
  }

  forward(x: Tensor, h?: Tensor): Tensor {
    return this.step(x, h).hn
  }
}

/** One step of a GRU. shape: x[B, inputSize], h[B, H] (default 0) -> h'[B, H] */
export class GRUCell extends CellBase {
  constructor(inputSize: number, hiddenSize: number, options: CellOptions = {}) {
    super('gru', inputSize, hiddenSize, options)
  }

  forward(x: Tensor, h?: Tensor): Tensor {
    return this.step(x, h).hn
  }
}

/** One step of an LSTM. shape: x[B, inputSize], h and c [B, H] (default 0) -> h'[B, H]; `withState` also returns c'. */
export class LSTMCell extends CellBase {
  constructor(inputSize: number, hiddenSize: number, options: CellOptions = {}) {
    super('lstm', inputSize, hiddenSize, options)
  }

  protected override get entryPoints(): readonly string[] {
    return ['forward', 'withState']
  }

  forward(x: Tensor, h?: Tensor, c?: Tensor): Tensor {
    return this.withState(x, h, c).hn
  }

  withState(x: Tensor, h?: Tensor, c?: Tensor): { hn: Tensor; cn: Tensor } {
    const { hn, cn } = this.step(x, h, c)
    return byName('LSTMCell.withState', { hn, cn: cn! })
  }
}

for (const cell of [CellBase, RNNCell, GRUCell, LSTMCell]) countArguments(cell)
