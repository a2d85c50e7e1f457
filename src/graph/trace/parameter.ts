import { calledAs } from '../../util/called-as.ts'
import { TabringError } from '../../util/errors.ts'
import { checkFlag, requireFlag } from '../../util/options.ts'
import { countArguments } from '../../util/plain-callers.ts'
import { type Shape, tensorType } from '../../util/shape.ts'
import type { Memory } from '../memory/memory-device.ts'
import type { GradientExchange, RankGroup } from './exchange.ts'
import { type Home, StoredTensor } from './stored-tensor.ts'
import { gradientFor, type Tensor, TracedTensor } from './tensor.ts'
import { activeTrace, isTracing } from './trace.ts'
import { type DividedAxis, GraphValue } from './value.ts'

/** A tensor that training updates by its gradient. */
export class Parameter extends StoredTensor<Float32Array<ArrayBuffer>> {
  readonly value: GraphValue
  /** True if it is this rank's part of a parameter that `fullyShard` has divided. */
  readonly isShard: boolean = false
  /** Updates by steps that have begun, and those that a read cannot miss. */
  readonly updates = { begun: 0, ended: 0 }
  #requiresGrad = true
  #tracedGrad = true
  /** Set by DistributedDataParallel: how gradients are summed over ranks. */
  exchange: GradientExchange<Parameter> | undefined
  /** Set by fullyShard, parallelizeModule and replicate while they work: which one. */
  sharingBy: string | undefined
  /** Set by fullyShard and parallelizeModule: the ranks of which each holds a part of what is one parameter of the model. */
  sharedBy: RankGroup | undefined
  /** Set by parallelizeModule: along which axis. */
  dividedAlong: DividedAxis | undefined
  /**
   * Set by `replicate`, and by fullyShard over a mesh of two dimensions: the ranks that hold the same and sum their gradients before an
   * update.
   */
  replicatedBy: RankGroup | undefined
  /** Set by parallelizeModule for what it does not divide: the ranks that began with the same. */
  sameOn: RankGroup | undefined
  /** Set by `replicate` and fullyShard: how many ranks, each with its own samples, its gradient is a mean over. */
  meanOver = 1
  /** The function that put this rank's part of it in its place. */
  #dividedBy: string | undefined

  /** `data`: as `StoredTensor`. */
  constructor(shape: Shape, data: Float32Array<ArrayBuffer> | (() => Float32Array<ArrayBuffer>)) {
    const type = calledAs(new.target.name, 'tensorType', () => tensorType(shape))
    super(type, data)
    this.value = new GraphValue(type, { kind: 'parameter', parameter: this })
  }

  /** True if it gets a gradient; frozen parameters get none and are never updated. Steps compiled before refuse to run until one that has the change is compiled. */
  override get requiresGrad(): boolean {
    if (isTracing()) this.#tracedGrad = this.#requiresGrad
    return this.#requiresGrad
  }
  override set requiresGrad(requiresGrad: boolean) {
    requireFlag('Parameter', 'requiresGrad', requiresGrad)
    this.#requiresGrad = requiresGrad
  }

  /** True if no traced function has read `requiresGrad` since it was set to another value. */
  get isGradChanged(): boolean {
    return this.#tracedGrad !== this.#requiresGrad
  }

  override requiresGrad_(requiresGrad = true): this {
    checkFlag('requiresGrad_', 'requiresGrad', requiresGrad)
    this.#requiresGrad = requiresGrad
    return this
  }

  /** Frees it: `by` has put this rank's part of it in its place. errors: `graph.misuse` for a parameter in DistributedDataParallel. */
  giveWayTo(by: string): void {
    if (this.exchange) {
      throw new TabringError(
        'graph.misuse',
        `${by}: ${this.title} is in DistributedDataParallel, which needs the whole on each rank. Call ${by} for a model that is not wrapped.`,
      )
    }
    this.#dividedBy = by
    this.release()
  }

  /** The function that put a part in its place; undefined for a parameter that is whole or is such a part. */
  get dividedBy(): string | undefined {
    return this.#dividedBy
  }

  /** errors: `graph.misuse` once ranks have divided it: its contents are nowhere. */
  override get isReleased(): boolean {
    this.#mustBeWhole()
    return super.isReleased
  }

  /** errors: as `isReleased`; `device.mismatch`. */
  override place(memory: Memory): Home {
    this.#mustBeWhole()
    return super.place(memory)
  }

  #mustBeWhole(): void {
    if (!this.#dividedBy) return
    throw new TabringError(
      'graph.misuse',
      `${this.title} was divided over ranks by ${this.#dividedBy}, and the whole is freed. Use the parameter that the divided module has now, in programs compiled since. Layers that share a weight must be divided by one call of ${this.#dividedBy}.`,
    )
  }

  protected override like(data: Float32Array<ArrayBuffer>): this {
    const copy = new Parameter(this.value.type.shape, data)
    copy.name = this.name
    return copy.requiresGrad_(this.#requiresGrad) as this
  }

  /** Does nothing: parameters always keep their gradient. */
  override retainGrad(): void {
    activeTrace('retainGrad')
  }

  /** The gradient computed by `backward` in the function being compiled; undefined before, and after `zeroGrad`. */
  override get grad(): Tensor | undefined {
    const gradient = activeTrace('grad').gradients.get(this)
    return gradient && new TracedTensor(gradient)
  }
  override set grad(gradient: Tensor | undefined) {
    const { gradients } = activeTrace('grad')
    if (gradient) gradients.set(this, gradientFor(this, gradient))
    else gradients.delete(this)
  }
}

countArguments(Parameter, { requiresGrad_: 1 })
