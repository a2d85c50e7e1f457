/**
 * Messages between ranks in the middle of a step, with gradients: for models that are split by hand.
 *
 *     rank 0    forward ─ sent = send(h, 1)              sent.backward() ─ update
 *                                 │ h                        │ dh
 *     rank 1              h = recv(shape, 0) ─ forward ─ loss.backward() ─ update
 *
 * Every rank compiles its own function, which has its part of the model alone. Where one function has the whole model, `x.to("rank:1/webgpu:0")`
 * and `pipeline` do the same.
 * bytes: those of h in forward, and again in backward, through the host of both ranks.
 */
import { addBackwardFrom, requiresGradient } from '../../graph/trace/backward.ts'
import { hookGradients } from '../../graph/trace/gradient-hooks.ts'
import { mustBeTensor, type Tensor, TracedTensor } from '../../graph/trace/tensor.ts'
import { activeTrace, type Trace } from '../../graph/trace/trace.ts'
import type { GraphValue } from '../../graph/trace/value.ts'
import { constant } from '../../kernels/constant/constant.ts'
import { transfer } from '../../kernels/transfer/transfer.ts'
import { calledAs } from '../../util/called-as.ts'
import type { PlacedDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { checkNumber, checkOptions, isCount } from '../../util/options.ts'
import type { Shape } from '../../util/shape.ts'

/** A tensor that was sent to another rank. */
export class Sent {
  readonly #tensor: Tensor
  readonly #dst: number

  /** @internal */
  constructor(tensor: Tensor, dst: number) {
    this.#tensor = tensor
    this.#dst = dst
  }

  /**
   * Receives the gradient by this tensor from the rank that it was sent to, and continues backward here.
   *
   * That rank must call `backward` on a loss behind its `recv`. errors: `graph.misuse` if nothing here requires a gradient.
   */
  backward(): void {
    const trace = activeTrace('backward')
    const { value } = this.#tensor
    if (!requiresGradient(trace, value)) {
      throw new TabringError(
        'graph.misuse',
        `backward: what was sent to rank ${this.#dst} does not depend on a parameter. Leave backward out here, and pass { requiresGrad: false } to recv there.`,
      )
    }
    addBackwardFrom(trace, value, incoming(trace, this.#tensor.shape, this.#dst).value)
  }
}

export interface RecvOptions {
  /** True if `backward` sends the gradient back; default true. */
  readonly requiresGrad?: boolean
}

/**
 * Sends a tensor to a rank, which calls `recv` in its step. Messages between two ranks arrive in the order in which both call.
 *
 * `dst`: a global rank. Compile with `{ group }`, on all ranks. errors: `peer.mismatch` from `compile` where the other rank does not receive
 * this, by shape and order.
 */
export function send(x: Tensor, dst: number): Sent {
  mustBeTensor('parallel.send', { x })
  checkRank('parallel.send', 'dst', dst)
  outgoing(activeTrace('parallel.send'), x.float(), dst)
  return new Sent(x, dst)
}

/** Receives a tensor of f32 from a rank that calls `send` in its step. `src`: a global rank. errors: as `send`. */
export function recv(shape: Shape, src: number, options: RecvOptions = {}): Tensor {
  const { requiresGrad = true } = checkOptions('parallel.recv', options, { requiresGrad: 'flag' })
  checkRank('parallel.recv', 'src', src)
  const trace = activeTrace('parallel.recv')
  const received = calledAs('parallel.recv', 'tensorType', () => incoming(trace, shape, src))
  if (!requiresGrad) return received
  received.requiresGrad_()
  hookGradients([received], ([gradient]) => {
    if (gradient) outgoing(trace, gradient.float(), src)
    return undefined
  })
  return received
}

const checkRank = (where: string, name: string, rank: number) =>
  checkNumber(where, name, rank, (one) => isCount(one + 1), 'a global rank', true)

/** Only the rank counts: it decides which of its devices sends or receives. */
const deviceOf = (rank: number): PlacedDevice => ({ type: 'webgpu', index: 0, rank })

function outgoing(trace: Trace, { value }: Tensor, rank: number): void {
  trace.sendsByHand = true
  const from = trace.deviceOf(value) ?? trace.device
  keep(trace, trace.emit(transfer, [value], { from, to: deviceOf(rank) })[0])
}

function incoming(trace: Trace, shape: Shape, rank: number): Tensor {
  trace.sendsByHand = true
  // Stands for what the other rank computes; it is made there, so never here.
  const [there] = trace.emit(constant, [], { shape, dtype: 'f32', start: 0, step: 0 })
  const [here] = trace.emit(transfer, [there], { from: deviceOf(rank), to: trace.device })
  keep(trace, here)
  return new TracedTensor(here)
}

/** The other rank has its end of a transfer, whether or not anything here reads the result. */
function keep(trace: Trace, { node }: GraphValue): void {
  trace.effects.push(node!)
}
