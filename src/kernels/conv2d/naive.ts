import { eachFloat } from '../elements.ts'
import type { OpCall, Variant } from '../op.ts'
import { floatFunction, readsFloats } from '../shader.ts'
import { epilogueOf } from './epilogue.ts'
import type { ConvAttrs, ConvSizes } from './geometry.ts'

/** Where one plain convolution differs from another. */
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
    const { inputs, outputs, attrs } = call
    const epilogue = epilogueOf(attrs.epilogue, inputs, 2, outputs[0])
    return {
      dispatches: eachFloat({
        label: labelOf(sizes),
        bindings: [
          readsFloats(from, { in: 0 }, inputs[0]),
          readsFloats('w', { in: 1 }, inputs[1]),
          ...epilogue.bindings,
        ],
        output: { name: to, type: outputs[0] },
        constants: { ...sizes },
        functions: [
          floatFunction(from, inputs[0]),
          floatFunction('w', inputs[1]),
          epilogue.wgsl,
          wgsl,
        ].join('\n\n'),
      }),
    }
  },
})
