import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { countElements, formatShape, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { type Case, defineOp, type Op } from '../op.ts'
import { reads, writes } from '../shader.ts'

export interface OneHotAttrs {
  readonly classes: number
}

/** y[.., c] = 1 where the index is c, else 0, as f32. An index outside of the classes gives a row of zeros. */
export const oneHot: Op<OneHotAttrs> = defineOp<OneHotAttrs>({
  name: 'oneHot',
  infer([index], { classes }) {
    if (index.dtype === 'f32' || !Number.isInteger(classes) || classes < 1) {
      throw new ShapeError(
        'shape.unsupported',
        `oneHot: expected an integer index and at least one class, got ${index.dtype}${formatShape(index.shape)} and ${quoted(classes)}. Convert the index.`,
      )
    }
    return [tensorType([...index.shape, classes])]
  },
  variants: oneVariant(({ outputs: [y], attrs: { classes } }) =>
    eachElement({
      label: 'oneHot',
      count: countElements(y.shape),
      bindings: [reads('index', { in: 0 }, 'u32'), writes('y', { out: 0 })],
      main: [`y[i] = select(0.0, 1.0, index[i / ${classes}u] == i % ${classes}u);`],
    }),
  ),
  reference([index], { attrs: { classes } }) {
    const y = new Float64Array(index.length * classes)
    index.forEach((at, n) => {
      if (at >= 0 && at < classes) y[n * classes + at] = 1
    })
    return [y]
  },
  tolerance: { absolute: 0, relative: 0, because: 'zeros and ones' },
  cases: [
    hotCase('a batch', [2, 9], 7),
    hotCase('some outside', [67], 3),
    hotCase('one element', [1], 1),
    hotCase('nothing', [0], 4),
    { ...hotCase('a scalar', [], 5), fill: 'huge' },
  ],
})

function hotCase(name: string, shape: readonly number[], classes: number): Case<OneHotAttrs> {
  return { name, inputs: [tensorType(shape, 'i32')], attrs: { classes } }
}
