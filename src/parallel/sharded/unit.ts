import type { Parameter } from '../../graph/trace/parameter.ts'
import { type Tensor, TracedTensor } from '../../graph/trace/tensor.ts'
import { activeTrace, isTracing, type Trace } from '../../graph/trace/trace.ts'
import { syncRanks } from '../../kernels/sync-ranks/sync-ranks.ts'
import type { Module } from '../../nn/module.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { formatDevice } from '../../util/device.ts'
import { countElements } from '../../util/shape.ts'
import { groupsOf } from '../mesh/groups-of.ts'
import { holdPart } from '../mesh/hold-part.ts'
import type { ShardedParameter } from './sharded-parameter.ts'

/** A property that holds a parameter. */
export interface ParameterPlace {
  readonly owner: Module
  readonly name: string
}

/** Parameters that are gathered together: those of one `fullyShard` call. */
export class Unit {
  readonly #group: CollectiveGroup
  readonly #replicas: CollectiveGroup | undefined
  readonly #shards: readonly ShardedParameter[]
  readonly #reshards: boolean
  /** While the module's forward is traced: the whole parameters. */
  #whole: { readonly trace: Trace; readonly tensors: ReadonlyMap<Parameter, Tensor> } | undefined

  constructor(
    group: CollectiveGroup,
    replicas: CollectiveGroup | undefined,
    shards: ReadonlyMap<Parameter, ShardedParameter>,
    reshards: boolean,
  ) {
    this.#group = group
    this.#replicas = replicas
    this.#shards = [...shards.values()]
    this.#reshards = reshards
  }

  /** Makes properties hold the shard, and the whole parameter during forward. */
  takePlaces(shard: ShardedParameter, places: readonly ParameterPlace[]): void {
    for (const { owner, name } of places) holdPart(owner, name, () => this.#wholeOf(shard) ?? shard)
  }

  /** Gathers the parameters in the trace under way. */
  open(): undefined {
    const trace = activeTrace('forward')
    trace.sampleRank = this.#sampleRank
    const tensors = this.#reshards
      ? trace.inRegion((region) => {
          region.isTransient = true
          return this.#gather(trace)
        })
      : this.#gather(trace)
    this.#whole = { trace, tensors }
  }

  close(): undefined {
    this.#whole = undefined
  }

  /** Every rank sees other samples, in all replicas of the shards. */
  get #sampleRank(): number {
    const { rank, size } = this.#group
    return (this.#replicas?.rank ?? 0) * size + rank
  }

  /** Nothing where a forward threw and left the module open. */
  #wholeOf(shard: ShardedParameter): Tensor | undefined {
    const isOpen = isTracing() && activeTrace('forward') === this.#whole?.trace
    return isOpen ? this.#whole?.tensors.get(shard) : undefined
  }

  #gather(trace: Trace): Map<Parameter, Tensor> {
    const { rank, size } = this.#group
    const group = groupsOf(trace).numberOf(this.#group)
    const attrs = { syncPoint: 'gather', rank, size, group } as const
    const whole = new Map<Parameter, Tensor>()
    for (const shards of this.#together(trace)) {
      const totals = shards.map(({ stateShape }) => countElements(stateShape))
      const values = shards.map(({ value }) => value)
      const gathered = trace.emit(syncRanks, values, { ...attrs, totals })
      for (const [i, shard] of shards.entries())
        whole.set(shard, new TracedTensor(gathered[i]).reshape(shard.stateShape))
    }
    return whole
  }

  /** Those that one exchange gathers: on one device, and with gradients or without. */
  #together(trace: Trace): ShardedParameter[][] {
    const sets = new Map<string, ShardedParameter[]>()
    for (const shard of this.#shards) {
      const key = `${formatDevice(trace.deviceOf(shard.value)!)} ${shard.requiresGrad}`
      sets.set(key, [...(sets.get(key) ?? []), shard])
    }
    return [...sets.values()]
  }
}
