import { Parameter } from '../../graph/trace/parameter.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { countElements, type Shape } from '../../util/shape.ts'

type Floats = Float32Array<ArrayBuffer>

/**
 * This rank's part of a parameter: 1/N of its elements in order, the last parts padded with zeros.
 *
 * Optimizers and state dicts take it for the parameter. shape: that of the whole; its value is [ceil(elements / N)]
 */
export class ShardedParameter extends Parameter {
  override readonly isShard = true
  readonly #group: CollectiveGroup
  readonly #shape: Shape

  /** `whole`: what it is a part of. `contents`: of the whole. */
  constructor(whole: Parameter, contents: Floats, group: CollectiveGroup) {
    const length = Math.ceil(whole.count / group.size)
    super([length], partOf(contents, length, group.rank))
    this.#group = group
    this.#shape = whole.shape
    this.name = whole.name
    this.sharedBy = group
    this.requiresGrad = whole.requiresGrad
    if (whole.device) this.moveToDevice(whole.device)
  }

  /** So that weight decay can be chosen by the number of dimensions. */
  override get shape(): Shape {
    return this.#shape
  }

  /** Takes the whole's contents, or those of this rank's part. */
  override assign(data: Floats): void {
    if (data.length === countElements(this.#shape)) this.assignWhole(data)
    else super.assign(data)
  }

  override async wholeOf(contents: Floats): Promise<Floats> {
    const all = await this.#group.allGatherConcat(contents, { label: 'stateDict' })
    return all.slice(0, countElements(this.#shape))
  }

  override partOf(whole: Floats): Floats {
    return partOf(whole, this.count, this.#group.rank)
  }
}

function partOf(whole: Floats, length: number, rank: number): Floats {
  const part = new Float32Array(length)
  part.set(whole.subarray(rank * length, (rank + 1) * length))
  return part
}
