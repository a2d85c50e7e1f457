import { calledAs } from '../../util/called-as.ts'
import { isOf } from '../../util/kind-of.ts'
import { countArguments } from '../../util/plain-callers.ts'
import { type Shape, tensorType } from '../../util/shape.ts'
import type { GradientExchange } from './exchange.ts'
import { type StoredData, StoredTensor } from './stored-tensor.ts'
import { GraphValue } from './value.ts'

/**
 * A tensor that belongs to a module and has no gradient, such as running statistics.
 *
 * Ops that list it in their `updates` change it on the device, inside the compiled step. Its dtype is that of its data.
 */
export class ModuleBuffer extends StoredTensor {
  readonly value: GraphValue
  /** Set by DistributedDataParallel if all ranks adopt rank 0's contents after each step that changes it. */
  exchange: GradientExchange | undefined

  constructor(shape: Shape, data: StoredData) {
    const dtype = isOf(data, Int32Array) ? 'i32' : 'f32'
    const type = calledAs('ModuleBuffer', 'tensorType', () => tensorType(shape, dtype))
    super(type, data)
    this.value = new GraphValue(type, { kind: 'buffer', buffer: this })
  }

  protected override like(data: StoredData): this {
    const copy = new ModuleBuffer(this.shape, data)
    copy.name = this.name
    return copy as this
  }
}

countArguments(ModuleBuffer)
