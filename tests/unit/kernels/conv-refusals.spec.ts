import { expect, test } from 'vitest'
import { conv2d, convTranspose2d } from '../../../src/graph/functions/convolution.ts'
import { TracedTensor } from '../../../src/graph/trace/tensor.ts'
import { Trace, withTrace } from '../../../src/graph/trace/trace.ts'
import { GraphValue } from '../../../src/graph/trace/value.ts'
import { avgPool2d } from '../../../src/kernels/avg-pool2d/avg-pool2d.ts'
import { batchNorm, batchNormTracked } from '../../../src/kernels/batch-norm/batch-norm.ts'
import { conv2d as conv2dOp } from '../../../src/kernels/conv2d/conv2d.ts'
import { ShapeError } from '../../../src/util/errors.ts'
import { type Shape, tensorType } from '../../../src/util/shape.ts'

const tensor = (shape: Shape) =>
  new TracedTensor(new GraphValue(tensorType(shape), { kind: 'input', name: 'x' }))
const traced = (body: () => unknown) => () => withTrace(new Trace(), body)
const plain = { stride: [1, 1], padding: [0, 0], epilogue: [], count: null } as const
const norm = { eps: 1e-5, epilogue: [], count: null }
const features = tensorType([3])

const refused: [name: string, act: () => unknown, text: RegExp][] = [
  [
    'groups that do not divide the channels',
    () =>
      conv2dOp.infer([tensorType([1, 6, 5, 5]), tensorType([4, 3, 3, 3])], { ...plain, groups: 4 }),
    /conv2d: C must agree and O must be a multiple of the groups, got 6 in x.* and 3 x 4 groups in w.* Check the layer's channels and groups/,
  ],
  [
    'outputs that the groups do not divide',
    () =>
      conv2dOp.infer([tensorType([1, 6, 5, 5]), tensorType([5, 3, 3, 3])], { ...plain, groups: 2 }),
    /and O must be a multiple of the groups/,
  ],
  [
    'a kernel that is too large once dilated',
    () =>
      conv2dOp.infer([tensorType([1, 1, 5, 5]), tensorType([1, 1, 3, 3])], {
        ...plain,
        dilation: [3, 1],
      }),
    /conv2d: the kernel must fit into the padded image/,
  ],
  [
    "'same' with a stride",
    traced(() =>
      conv2d(tensor([1, 1, 5, 5]), tensor([1, 1, 3, 3]), undefined, { padding: 'same', stride: 2 }),
    ),
    /padding 'same' needs stride 1, got \[2, 2\]/,
  ],
  [
    'output padding of a whole stride, and dilation 1',
    traced(() =>
      convTranspose2d(tensor([1, 1, 5, 5]), tensor([1, 1, 3, 3]), undefined, {
        stride: 2,
        outputPadding: 2,
      }),
    ),
    /outputPadding must be at least 0 and below the stride or the dilation, got \[2, 2\] with stride \[2, 2\] and dilation \[1, 1\]/,
  ],
  [
    'input channels of another transposed weight',
    traced(() => convTranspose2d(tensor([1, 2, 5, 5]), tensor([1, 1, 3, 3]))),
    /convTranspose2d: expected x\[N, C, H, W\] and weight\[C, O \/ groups, KH, KW\], got \[1, 2, 5, 5\]/,
  ],
  [
    'a mean of more padding than window',
    () =>
      avgPool2d.infer([tensorType([1, 1, 5, 5])], {
        kernel: [2, 2],
        stride: [1, 1],
        padding: [2, 0],
        ceilMode: false,
        countIncludePad: true,
      }),
    /avgPool2d: the window must fit .* and padding must be at most half the kernel/,
  ],
  [
    'no outputs',
    () => avgPool2d.infer([tensorType([1, 1, 5, 5])], { outputSize: [0, 1] }),
    /avgPool2d: the output size must be two integers of at least 1, got \[0, 1\]/,
  ],
  [
    'the statistics of one value',
    () => batchNorm.infer([tensorType([1, 3]), features, features], norm),
    /batchNorm: expected more than 1 value per channel in training, got x\[1, 3\]/,
  ],
  [
    'a weight of other features',
    () => batchNorm.infer([tensorType([4, 5]), features, features], norm),
    /batchNorm: weight must be f32\[5\] for x\[4, 5\], got f32\[3\]/,
  ],
  [
    'a count of batches in floats',
    () =>
      batchNormTracked.infer(
        [tensorType([4, 3]), features, features, features, features, tensorType([])],
        { ...norm, momentum: 0.1 },
      ),
    /numBatchesTracked must be i32\[\], got f32\[\]/,
  ],
]

for (const [name, act, text] of refused) {
  test(`${name}: refused, and the text says why`, () => {
    expect(act).toThrow(ShapeError)
    expect(act).toThrow(text)
  })
}
