import { countElements } from '../../util/shape.ts'
import { floatElement, halfWords, inPairs } from '../half-bindings.ts'
import type { OpCall, Variant } from '../op.ts'
import { ceilDiv, dispatch, floatFunction, linearGroups, readsFloats, writes } from '../shader.ts'
import { epilogueOf } from './epilogue.ts'
import type { ConvAttrs, ConvSizes } from './geometry.ts'

/** What tells one plain convolution from another. */
export interface NaiveConv<A> {
  readonly sizesOf: (call: OpCall<A>) => ConvSizes
  readonly labelOf: (sizes: ConvSizes) => string
  /** Names in the shader: of the images that are read and of those that are written. */
  readonly from: string
  readonly to: string
  readonly wgsl: string
}

/** The variant of plain loops over images and weights `w`: one invocation makes an element of the result, or a word of two halves. */
export const naiveConv = <A extends ConvAttrs>({
  sizesOf,
  labelOf,
  from,
  to,
  wgsl,
}: NaiveConv<A>): Variant<A> => ({
  name: 'naive',
  lower(call) {
    const sizes = sizesOf(call)
    const count = countElements(call.outputs[0].shape)
    if (count === 0) return { dispatches: [] }
    const { half } = call.attrs
    const groups = linearGroups(ceilDiv(half ? halfWords(count) : count, 64))
    const epilogue = epilogueOf(call.attrs.epilogue, call.inputs, 2, call.outputs[0])
    const { N: _, ...constants } = sizes
    return {
      dispatches: [
        dispatch({
          label: labelOf(sizes),
          bindings: [
            readsFloats(from, { in: 0 }, call.inputs[0]),
            readsFloats('w', { in: 1 }, call.inputs[1]),
            ...epilogue.bindings,
            writes(to, { out: 0 }, floatElement(call.outputs[0])),
          ],
          constants: { ...constants, COUNT: count, GROUPS_X: groups[0] },
          body: [
            floatFunction(from, call.inputs[0]),
            floatFunction('w', call.inputs[1]),
            epilogue.wgsl,
            half ? inPairs(wgsl, to) : wgsl,
          ].join('\n\n'),
          groups,
        }),
      ],
    }
  },
})
