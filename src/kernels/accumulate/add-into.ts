import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, sameShape, tensorType } from '../../util/shape.ts'
import { defineOp, type OpCall, type Variant } from '../op.ts'
import type { UpdateAttrs } from '../update/rule.ts'
import { accumulate } from './accumulate.ts'

type NoAttrs = Readonly<Record<string, never>>

/** The call of `accumulate` that does the same to the flat tensors. */
function flatCall({ inputs, outputs }: OpCall<NoAttrs>): OpCall<UpdateAttrs> {
  const length = countElements(outputs[0].shape)
  return {
    inputs: inputs.map(() => tensorType([length])),
    outputs: [],
    attrs: { start: 0, length, settings: {} },
  }
}

const flatVariant = ({ name, when, lower }: Variant<UpdateAttrs>): Variant<NoAttrs> => ({
  name,
  ...(when && { when: (call, limits) => when(flatCall(call), limits) }),
  lower: (call) => lower(flatCall(call)),
})

/** total + x, in the memory of total. shape: of total, x and the result, the same */
export const addInto = defineOp<NoAttrs>({
  name: 'addInto',
  isInPlace: true,
  updates: [0],
  infer([total, x]) {
    if (sameShape(total.shape, x.shape) && total.dtype === 'f32' && x.dtype === 'f32')
      return [total]
    throw new ShapeError(
      'shape.mismatch',
      `addInto: expected two f32 tensors of one shape, got ${total.dtype}${formatShape(total.shape)} and ${x.dtype}${formatShape(x.shape)}. Convert or reshape one.`,
    )
  },
  variants: accumulate.variants.map(flatVariant) as [Variant<NoAttrs>, ...Variant<NoAttrs>[]],
  preferred: (call, limits) => accumulate.preferred!(flatCall(call), limits),
  reference(inputs, call, scalars) {
    accumulate.reference(inputs, flatCall(call), scalars)
    return [inputs[0]]
  },
  tolerance: accumulate.tolerance,
  cases: [
    { name: 'one element', inputs: [tensorType([]), tensorType([])], attrs: {} },
    { name: '3x5', inputs: [tensorType([3, 5]), tensorType([3, 5])], attrs: {} },
    { name: '4x3x8', inputs: [tensorType([4, 3, 8]), tensorType([4, 3, 8])], attrs: {} },
    { name: '70x64', inputs: [tensorType([70, 64]), tensorType([70, 64])], attrs: {} },
    { name: 'nothing', inputs: [tensorType([0, 3]), tensorType([0, 3])], attrs: {} },
    { name: 'huge', inputs: [tensorType([6, 2]), tensorType([6, 2])], attrs: {}, fill: 'huge' },
  ],
})
