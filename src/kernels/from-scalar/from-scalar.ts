import { tensorType } from '../../util/shape.ts'
import { oneVariant } from '../elements.ts'
import { defineOp, type Op, type ScalarSlot } from '../op.ts'
import { dispatch, reads, writes } from '../shader.ts'
import wgsl from './from-scalar.wgsl?raw'

/** Which of the step's scalars. */
export interface FromScalarAttrs {
  readonly slot: ScalarSlot
}

/** y = one of the step's scalars, as a tensor of shape []. */
export const fromScalar: Op<FromScalarAttrs> = defineOp<FromScalarAttrs>({
  name: 'fromScalar',
  infer: () => [tensorType([])],
  variants: oneVariant(({ attrs }) => [
    dispatch({
      label: `fromScalar ${attrs.slot.slot}`,
      bindings: [reads('scalars', 'scalars'), writes('y', { out: 0 })],
      constants: { SLOT: attrs.slot.slot },
      body: wgsl,
      groups: [1, 1, 1],
    }),
  ]),
  reference: (_, { attrs }, scalars) => [Float64Array.of(scalars[attrs.slot.slot])],
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  cases: [
    { name: 'the first', inputs: [], attrs: { slot: { slot: 0 } }, scalars: [0.5, 2] },
    { name: 'the third', inputs: [], attrs: { slot: { slot: 2 } }, scalars: [1, 2, -1e30, 4] },
  ],
})
