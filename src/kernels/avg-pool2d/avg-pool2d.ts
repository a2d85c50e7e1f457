import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, sameShape, tensorType } from '../../util/shape.ts'
import { checkImages } from '../conv2d/geometry.ts'
import { eachFloat, oneVariant } from '../elements.ts'
import { storedAs } from '../half.ts'
import { floatElement } from '../half-bindings.ts'
import { gradientOfOutput } from '../map/map.ts'
import { type Case, defineOp, type HalfAttrs, type HostArray, type Op } from '../op.ts'
import { reads } from '../shader.ts'
import forwardWgsl from './avg-pool2d.wgsl?raw'
import gradWgsl from './avg-pool2d-grad.wgsl?raw'
import { type AvgPoolAttrs, type Axis, poolAxes } from './windows.ts'

/** The windows, and how the means are stored. */
type AvgPoolCallAttrs = AvgPoolAttrs & HalfAttrs

export interface AvgPoolGradAttrs extends HalfAttrs {
  readonly windows: AvgPoolAttrs
  /** Shape of x. */
  readonly inputShape: Shape
}

const sizesOf = (rows: Axis, columns: Axis) => ({
  H: rows.size,
  W: columns.size,
  OH: rows.count,
  OW: columns.count,
})

const linkedIn = (rows: Axis, columns: Axis, wgsl: string) =>
  `${rows.wgsl('row')}\n${columns.wgsl('column')}\n\n${wgsl}`

/** Calls `visit` with the flat index of every pixel of every window, the window's, and the window's divisor. */
function eachPixel(
  planes: number,
  [rows, columns]: [Axis, Axis],
  visit: (pixel: number, window: number, divisor: number) => void,
): void {
  for (let p = 0; p < planes; p++)
    for (let oy = 0; oy < rows.count; oy++)
      for (let ox = 0; ox < columns.count; ox++) {
        const row = rows.range(oy)
        const column = columns.range(ox)
        for (let iy = row.start; iy < row.end; iy++)
          for (let ix = column.start; ix < column.end; ix++)
            visit(
              (p * rows.size + iy) * columns.size + ix,
              (p * rows.count + oy) * columns.count + ox,
              row.weight * column.weight,
            )
      }
}

const sliding = {
  kernel: [2, 2],
  stride: [2, 2],
  padding: [0, 0],
  ceilMode: false,
  countIncludePad: true,
} as const

/** Cases by the shape of x; the gradient's follow from them. */
const samples: readonly (readonly [
  name: string,
  x: Shape,
  windows: AvgPoolAttrs,
  fill?: Case['fill'],
])[] = [
  ['one element', [1, 1, 1, 1], { ...sliding, kernel: [1, 1] }],
  ['2x2, 3 planes of 8x10', [1, 3, 8, 10], sliding],
  ['2x2 of 7x9 leaves pixels out', [2, 3, 7, 9], sliding],
  [
    '3x3, stride 2, padding 1, divisor with padding',
    [2, 2, 9, 8],
    { ...sliding, kernel: [3, 3], padding: [1, 1] },
  ],
  [
    '3x2, stride 1x3, padding 1x0, divisor without padding',
    [2, 3, 6, 8],
    { ...sliding, kernel: [3, 2], stride: [1, 3], padding: [1, 0], countIncludePad: false },
  ],
  [
    'ceil mode, padded, divisor with padding',
    [1, 2, 8, 9],
    { ...sliding, kernel: [3, 4], stride: [2, 3], padding: [1, 1], ceilMode: true },
  ],
  [
    'ceil mode, last window dropped',
    [1, 2, 4, 5],
    { ...sliding, kernel: [2, 2], stride: [3, 3], padding: [1, 1], ceilMode: true },
  ],
  ['stride above the kernel', [2, 1, 9, 10], { ...sliding, stride: [4, 3] }],
  ['adaptive, to one', [3, 5, 7, 7], { outputSize: [1, 1] }],
  ['adaptive, uneven windows that overlap', [2, 3, 7, 10], { outputSize: [3, 4] }],
  ['adaptive, more outputs than pixels', [1, 2, 2, 3], { outputSize: [5, 3] }],
  ['an empty batch', [0, 2, 4, 4], sliding],
  ['huge', [2, 3, 9, 9], { ...sliding, kernel: [3, 3], padding: [1, 1] }, 'huge'],
]

const tolerance = {
  absolute: 1e-6,
  relative: 2e-6,
  because: "the mean of a window, or a sum of windows' shares, in f32",
}

/** y [N,C,OH,OW]: the mean of x [N,C,H,W] over each window. source: torch.nn.functional.avg_pool2d, adaptive_avg_pool2d */
export const avgPool2d: Op<AvgPoolCallAttrs> = defineOp<AvgPoolCallAttrs>({
  name: 'avgPool2d',
  infer([x], attrs) {
    checkImages('avgPool2d', 'x', x)
    const [rows, columns] = poolAxes('avgPool2d', x.shape, attrs)
    const shape = [x.shape[0], x.shape[1], rows.count, columns.count]
    return [tensorType(shape, attrs.half ? 'f16' : 'f32')]
  },
  takesHalf: true,
  givesHalf: () => true,
  variants: oneVariant(({ inputs: [x], outputs: [y], attrs }) => {
    const axes = poolAxes('avgPool2d', x.shape, attrs)
    return eachFloat({
      label: `avgPool2d ${x.shape.join('x')} to ${y.shape.slice(2).join('x')}`,
      bindings: [reads('x', { in: 0 }, floatElement(x))],
      output: { name: 'y', type: y },
      constants: sizesOf(...axes),
      functions: linkedIn(...axes, forwardWgsl),
    })
  }),
  gradient(context) {
    const dy = gradientOfOutput(context)
    const [{ type }] = context.inputs
    const { half: _, ...windows } = context.attrs
    const isHalf = type.dtype === 'f16'
    const attrs = { windows, inputShape: type.shape, ...(isHalf && { half: true }) }
    return dy ? context.emit(avgPool2dGrad, [dy], attrs) : []
  },
  reference([x], { inputs: [{ shape }], outputs, attrs }): HostArray[] {
    const y = new Float64Array(countElements(outputs[0].shape))
    eachPixel(
      shape[0] * shape[1],
      poolAxes('avgPool2d', shape, attrs),
      (pixel, window, divisor) => {
        y[window] += x[pixel] / divisor
      },
    )
    return [storedAs(attrs, y)]
  },
  tolerance,
  cases: [
    ...samples.map(([name, x, attrs, fill]) => ({ name, inputs: [tensorType(x)], attrs, fill })),
    {
      name: 'f16, adaptive, an odd number of windows',
      inputs: [tensorType([1, 3, 7, 5], 'f16')],
      attrs: { outputSize: [3, 3], half: true },
    },
  ],
})

/** dx [N,C,H,W] of avgPool2d from dy [N,C,OH,OW]. */
export const avgPool2dGrad: Op<AvgPoolGradAttrs> = defineOp<AvgPoolGradAttrs>({
  name: 'avgPool2dGrad',
  takesHalf: true,
  givesHalf: () => true,
  infer([dy], { windows, inputShape, half }) {
    const dx = tensorType([...inputShape], half ? 'f16' : 'f32')
    checkImages('avgPool2dGrad', 'x', dx)
    const [rows, columns] = poolAxes('avgPool2dGrad', inputShape, windows)
    const expected = [inputShape[0], inputShape[1], rows.count, columns.count]
    if (!sameShape(dy.shape, expected) || (dy.dtype !== 'f32' && dy.dtype !== 'f16')) {
      throw new ShapeError(
        'shape.mismatch',
        `avgPool2dGrad: dy must be f32 or f16${formatShape(expected)}, got ${dy.dtype}${formatShape(dy.shape)}. Pass the output's gradient unchanged.`,
      )
    }
    return [dx]
  },
  variants: oneVariant(({ inputs: [dy], outputs: [dx], attrs: { windows, inputShape } }) => {
    const axes = poolAxes('avgPool2dGrad', inputShape, windows)
    return eachFloat({
      label: `avgPool2dGrad ${dy.shape.slice(2).join('x')} to ${dx.shape.join('x')}`,
      bindings: [reads('dy', { in: 0 }, floatElement(dy))],
      output: { name: 'dx', type: dx },
      constants: sizesOf(...axes),
      functions: linkedIn(...axes, gradWgsl),
    })
  }),
  reference([dy], { outputs, attrs: { windows, inputShape, half } }): HostArray[] {
    const dx = new Float64Array(countElements(outputs[0].shape))
    const axes = poolAxes('avgPool2dGrad', inputShape, windows)
    eachPixel(inputShape[0] * inputShape[1], axes, (pixel, window, divisor) => {
      dx[pixel] += dy[window] / divisor
    })
    return [storedAs({ half }, dx)]
  },
  tolerance,
  cases: [
    ...samples.map(([name, inputShape, windows, fill]) => {
      const [rows, columns] = poolAxes('avgPool2dGrad', inputShape, windows)
      const dy = tensorType([inputShape[0], inputShape[1], rows.count, columns.count])
      return { name, inputs: [dy], attrs: { windows, inputShape }, fill }
    }),
    {
      name: 'f16, an odd number of pixels',
      inputs: [tensorType([1, 3, 4, 3], 'f16')],
      attrs: {
        windows: { ...sliding, kernel: [3, 3], padding: [1, 1] },
        inputShape: [1, 3, 7, 5],
        half: true,
      },
    },
  ],
})
