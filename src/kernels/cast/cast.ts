import { countElements, type HostDType, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { defineOp, type HostArray, type Op } from '../op.ts'
import { reads, writes } from '../shader.ts'

export interface CastAttrs {
  readonly dtype: HostDType
}

const convert: Record<HostDType, (value: number) => number> = {
  f32: Math.fround,
  i32: (value) => (value > 0x7fff_ffff ? value | 0 : Math.max(Math.trunc(value), -0x8000_0000)),
  u32: (value) => Math.trunc(value) >>> 0,
}

/**
 * y = x in another dtype. Floats to integers round toward 0 and stop at the ends of the range; i32 and u32 keep their bits.
 *
 * Nothing flows back through integers: the gradient is undefined.
 */
export const cast: Op<CastAttrs> = defineOp<CastAttrs>({
  name: 'cast',
  infer: ([x], { dtype }) => [tensorType(x.shape, dtype)],
  variants: oneVariant(({ inputs: [{ shape, dtype: from }], attrs: { dtype: to } }) =>
    eachElement({
      label: `cast ${from} to ${to}`,
      count: countElements(shape),
      bindings: [reads('x', { in: 0 }, from as HostDType), writes('y', { out: 0 }, to)],
      main: [`y[i] = ${to}(x[i]);`],
    }),
  ),
  gradient: ({ inputs: [x], outputs: [y], outputGradients: [dy] }) => [
    x.type.dtype === 'f32' && y.type.dtype === 'f32' ? dy : undefined,
  ],
  reference([x], { inputs: [{ dtype: from }], attrs: { dtype: to } }) {
    const array = { f32: Float64Array, i32: Int32Array, u32: Uint32Array }[to]
    const clamp = (value: number) =>
      from !== 'f32' || to === 'f32'
        ? value
        : to === 'i32'
          ? Math.min(Math.max(value, -0x8000_0000), 0x7fff_ffff)
          : Math.min(Math.max(value, 0), 0xffff_ffff)
    const y: HostArray = new array(x.length)
    for (let i = 0; i < x.length; i++) y[i] = convert[to](clamp(x[i]))
    return [y]
  },
  tolerance: { absolute: 0, relative: 0, because: 'converting is exact for these magnitudes' },
  cases: [
    { name: 'f32 to i32', inputs: [tensorType([3, 23])], attrs: { dtype: 'i32' }, fill: 'huge' },
    { name: 'f32 to u32', inputs: [tensorType([65])], attrs: { dtype: 'u32' }, fill: 'huge' },
    { name: 'i32 to f32', inputs: [tensorType([7], 'i32')], attrs: { dtype: 'f32' } },
    { name: 'u32 to f32', inputs: [tensorType([7], 'u32')], attrs: { dtype: 'f32' } },
    { name: 'i32 to u32', inputs: [tensorType([7], 'i32')], attrs: { dtype: 'u32' } },
    { name: 'f32 to f32', inputs: [tensorType([5])], attrs: { dtype: 'f32' } },
    { name: 'one element', inputs: [tensorType([])], attrs: { dtype: 'i32' } },
    { name: 'nothing', inputs: [tensorType([0])], attrs: { dtype: 'i32' } },
  ],
})
