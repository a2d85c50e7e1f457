import { countElements, type HostDType, type Shape, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { defineOp, type Op } from '../op.ts'
import { f32Literal, writes } from '../shader.ts'
import { wordOf } from '../view/copy-kernel.ts'
import { emptyLike } from '../view/region.ts'

/** Element i is `start + i * step`; all equal `start` where `step` is 0. */
export interface ConstantAttrs {
  readonly shape: Shape
  readonly dtype: HostDType
  readonly start: number
  readonly step: number
}

/** y = numbers known when the program is made, written by the device: zeros, ones, full, arange. */
export const constant: Op<ConstantAttrs> = defineOp<ConstantAttrs>({
  name: 'constant',
  infer: (_, { shape, dtype }) => [tensorType(shape, dtype)],
  variants: oneVariant(({ attrs: { shape, dtype, start, step } }) => {
    const number = (value: number) =>
      dtype === 'f32' ? f32Literal(value) : `bitcast<${dtype}>(${wordOf(value, dtype)}u)`
    const count = countElements(shape)
    // As words where all are equal: infinities and NaN have no literal.
    const isEqual = step === 0 || count < 2
    return eachElement({
      label: 'constant',
      count,
      bindings: [writes('y', { out: 0 }, isEqual ? 'u32' : dtype)],
      main: [
        isEqual
          ? `y[i] = ${wordOf(start, dtype)}u;`
          : `y[i] = ${number(start)} + ${dtype}(i) * ${number(step)};`,
      ],
    })
  }),
  reference: (_, { attrs: { shape, dtype, start, step } }) => {
    const y = emptyLike(dtype, countElements(shape))
    for (let i = 0; i < y.length; i++) y[i] = start + i * step
    return [y]
  },
  tolerance: { absolute: 0, relative: 3e-7, because: 'a product and a sum, each rounded once' },
  cases: [
    constantCase('zeros', [3, 7], 'f32', 0),
    constantCase('a third', [65], 'f32', 1 / 3),
    { ...constantCase('huge', [5], 'f32', -12_345.67), fill: 'huge' },
    constantCase('infinity', [5], 'f32', Number.NEGATIVE_INFINITY),
    constantCase('counting', [67], 'f32', 0, 1),
    constantCase('by halves', [9], 'f32', -2, 0.5),
    constantCase('integers down', [70], 'i32', 5, -3),
    constantCase('words', [3], 'u32', 4_000_000_000),
    constantCase('one element', [], 'f32', 1),
    constantCase('nothing', [0, 3], 'f32', 1),
  ],
})

function constantCase(name: string, shape: Shape, dtype: HostDType, start: number, step = 0) {
  return { name, inputs: [], attrs: { shape, dtype, start, step } }
}
