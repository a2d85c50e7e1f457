import { countElements, sameShape, tensorType } from '../../util/shape.ts'
import { type MapAttrs, map } from '../map/map.ts'
import { i, s, singleStep, step } from '../map/rules/rule.ts'
import { type Case, caseOf, defineOp, type Op, type Value } from '../op.ts'
import { lowerOverAxes, reductionVariants } from '../reduce/passes.ts'
import {
  checkAxes,
  kept,
  over,
  type ReduceAttrs,
  reducedShape,
  reducedType,
  refuseEmpty,
} from '../reduce/shapes.ts'
import { reshape } from '../reshape/reshape.ts'
import { broadcastOffset } from '../steps.ts'
import { sum } from '../sum/sum.ts'

const integers = { integerBelow: { 0: 2 ** 31 } }

const cases = (): readonly Case<ReduceAttrs>[] => [
  caseOf('one element', [[1]], over(0)),
  caseOf('columns of 3x5', [[3, 5]], over(0)),
  caseOf('rows of 7x1001', [[7, 1001]], kept(1)),
  caseOf('all of 20,001', [[20_001]], over(0)),
  caseOf('axes 0, 2 of 5x6x70', [[5, 6, 70]], kept(0, 2)),
  caseOf('ties', [[6, 67]], over(1), { fill: 'ties' }),
  caseOf('huge', [[129, 3]], over(0), { fill: 'huge' }),
  caseOf('i32, rows of 5x301', [tensorType([5, 301], 'i32')], over(1), integers),
  caseOf('i32, all of 20,001', [tensorType([20_001], 'i32')], over(0), integers),
  caseOf('nothing over the other axis', [[0, 5]], over(1)),
]

const extreme = (name: string, combine: 'max' | 'min'): Op<ReduceAttrs> => {
  const op: Op<ReduceAttrs> = defineOp<ReduceAttrs>({
    name,
    infer([x], { axes, keepDims }) {
      checkAxes(name, x, axes)
      refuseEmpty(name, x, axes)
      return [reducedType(x, { axes, keepDims })]
    },
    ...reductionVariants((call, useTree) => lowerOverAxes(name, call, combine, useTree)),
    // dy / (how many are equal to y) at each of those
    gradient({ inputs: [x], outputs: [y], outputGradients: [dy], attrs, emit }) {
      if (!dy) return [undefined]
      const kept = reducedShape(x.type.shape, attrs.axes, true)
      const aligned = (value: Value): Value =>
        sameShape(value.type.shape, kept) ? value : emit(reshape, [value], { shape: kept })[0]
      const [isTop] = emit<MapAttrs>(map, [x, aligned(y)], { steps: singleStep('eq', 2) })
      const [count] = emit(sum, [isTop], { axes: attrs.axes, keepDims: true })
      const steps = [step('eq', i(0), i(1)), step('div', i(2), i(3)), step('mul', s(0), s(1))]
      return emit<MapAttrs>(map, [x, aligned(y), aligned(dy), count], { steps })
    },
    reference([x], { inputs: [{ shape, dtype }], attrs: { axes } }) {
      const kept = reducedShape(shape, axes, true)
      const count = countElements(kept)
      const y =
        dtype === 'i32'
          ? new Int32Array(count).fill(combine === 'max' ? -0x8000_0000 : 0x7fff_ffff)
          : new Float64Array(count).fill(combine === 'max' ? -Infinity : Infinity)
      for (let flat = 0; flat < x.length; flat++) {
        const at = broadcastOffset(shape, kept, flat)
        y[at] = Math[combine](y[at], x[flat])
      }
      return [y]
    },
    tolerance: { absolute: 0, relative: 0, because: 'one of the elements' },
    cases: cases(),
  })
  return op
}

/** y = the largest element over axes; a NaN wins; the gradient is shared evenly by equal elements. */
export const amax = extreme('amax', 'max')

/** y = the smallest element over axes; a NaN wins; the gradient is shared evenly by equal elements. */
export const amin = extreme('amin', 'min')
