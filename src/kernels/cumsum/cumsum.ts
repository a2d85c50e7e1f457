import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, tensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import { type Case, defineOp, type Lowering, type Op, type OpCall } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import wgsl from './cumsum.wgsl?raw'
import lanesWgsl from './cumsum-lanes.wgsl?raw'

/** `isReversed`: sums begin at the end of the axis (the gradient). */
export interface CumsumAttrs {
  readonly axis: number
  readonly isReversed: boolean
}

const sizesOf = ({ inputs: [{ shape }], attrs: { axis } }: OpCall<CumsumAttrs>) => ({
  lines: countElements(shape) / Math.max(1, shape[axis]),
  size: shape[axis],
  inner: countElements(shape.slice(axis + 1)),
})

function lower(call: OpCall<CumsumAttrs>, byLanes: boolean): Lowering {
  const { lines, size, inner } = sizesOf(call)
  const [{ shape, dtype: given }] = call.inputs
  const dtype = given === 'i32' ? 'i32' : 'f32'
  const kernel = {
    label: `cumsum ${lines}x${size}${byLanes ? ' lanes' : ''}`,
    bindings: [reads('x', { in: 0 }, dtype), writes('y', { out: 0 }, dtype)],
    constants: { SIZE: size, INNER: inner, REVERSE: call.attrs.isReversed ? 1 : 0 },
  }
  const count = countElements(shape) === 0 ? 0 : lines
  const alias = `alias Element = ${dtype};\n`
  if (!byLanes || count === 0) {
    return {
      dispatches: eachElement({ ...kernel, count, functions: alias + wgsl, main: ['element(i);'] }),
    }
  }
  const groups = linearGroups(lines)
  const constants = {
    ...kernel.constants,
    COUNT: lines,
    GROUPS_X: groups[0],
    PART: ceilDiv(size, 64),
  }
  return { dispatches: [dispatch({ ...kernel, constants, body: alias + lanesWgsl, groups })] }
}

/** y = running sums of x along an axis; of integers in i32, where they wrap around. */
export const cumsum: Op<CumsumAttrs> = defineOp<CumsumAttrs>({
  name: 'cumsum',
  infer([x], { axis }) {
    if ((x.dtype !== 'f32' && x.dtype !== 'i32') || !(axis in x.shape)) {
      throw new ShapeError(
        'shape.unsupported',
        `cumsum: expected an f32 or i32 tensor with dimension ${axis}, got ${x.dtype}${formatShape(x.shape)}. Convert it with float().`,
      )
    }
    return [x]
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, false) },
    {
      name: 'lanes',
      when: (call) => sizesOf(call).size > 64,
      lower: (call) => lower(call, true),
    },
  ],
  preferred(call, { isWasm }) {
    const { lines, size } = sizesOf(call)
    return !isWasm && size >= 256 && lines < 256 ? 'lanes' : 'naive'
  },
  gradient(context) {
    const [dy] = context.outputGradients
    const { axis, isReversed } = context.attrs
    return [dy && context.emit(cumsum, [dy], { axis, isReversed: !isReversed })[0]]
  },
  reference([x], { inputs: [{ shape }], attrs: { axis, isReversed } }) {
    const y = x.slice()
    const inner = countElements(shape.slice(axis + 1))
    const size = shape[axis]
    for (let i = 0; i < y.length; i++) {
      // Backwards where the sums begin at the end, so that the neighbour is done.
      const flat = isReversed ? y.length - 1 - i : i
      const t = Math.floor(flat / inner) % size
      if (isReversed ? t < size - 1 : t > 0) y[flat] += y[flat + (isReversed ? inner : -inner)]
    }
    return [y]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 1e-6,
    because: 'up to a thousand additions in f32; terms cancel, so the error is absolute',
  },
  cases: [
    cumsumCase('rows', [5, 7], 1),
    cumsumCase('columns', [70, 3], 0),
    cumsumCase('the middle axis, backwards', [2, 5, 3], 1, true),
    cumsumCase('a long line', [1000], 0),
    cumsumCase('long lines backwards', [3, 300], 1, true),
    cumsumCase('one element', [1], 0),
    cumsumCase('nothing', [3, 0], 1),
    ...[cumsumCase('i32, columns', [70, 3], 0), cumsumCase('i32, long lines', [3, 300], 1)].map(
      (test) => ({
        ...test,
        inputs: test.inputs.map(({ shape }) => tensorType(shape, 'i32')),
        integerBelow: { 0: 2 ** 31 },
      }),
    ),
    { ...cumsumCase('huge', [2, 40], 1), fill: 'huge' },
  ],
})

function cumsumCase(
  name: string,
  shape: Shape,
  axis: number,
  isReversed = false,
): Case<CumsumAttrs> {
  return { name, inputs: [tensorType(shape)], attrs: { axis, isReversed } }
}
