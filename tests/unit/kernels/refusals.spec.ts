import { expect, test } from 'vitest'
import { adam } from '../../../src/kernels/adam/adam.ts'
import { crossEntropy, crossEntropyGrad } from '../../../src/kernels/cross-entropy/cross-entropy.ts'
import { crossEntropyRows } from '../../../src/kernels/cross-entropy-rows/cross-entropy-rows.ts'
import { amax } from '../../../src/kernels/extreme/extreme.ts'
import { paramHash } from '../../../src/kernels/hash/param-hash.ts'
import { topK } from '../../../src/kernels/select/select.ts'
import { sgd } from '../../../src/kernels/sgd/sgd.ts'
import { softmax } from '../../../src/kernels/softmax/softmax.ts'
import { topKCorrect } from '../../../src/kernels/top-k/top-k.ts'
import { ShapeError } from '../../../src/util/errors.ts'
import { tensorType } from '../../../src/util/shape.ts'

const labels = (rows: number) => tensorType([rows], 'i32')
const slot = { slot: 0 }
const flat = tensorType([8])
const settings = Object.fromEntries(
  ['decay', 'l2', 'beta1', 'oneMinusBeta1', 'beta2', 'oneMinusBeta2', 'stepSize', 'eps'].map(
    (name) => [name, slot],
  ),
)
const adamAttrs = { settings, start: 0, length: 8 }

const rowsAttrs = { isLogits: true, smoothing: 0, ignoreIndex: -100, count: null }

const refused: [name: string, infer: () => unknown, text: RegExp][] = [
  [
    'rows that differ',
    () => crossEntropy.infer([tensorType([4, 3]), labels(5)], { count: null, ignoreIndex: -100 }),
    /crossEntropy: R must agree, got 4 in logits.* and 5 in target/,
  ],
  [
    'float targets',
    () =>
      crossEntropy.infer([tensorType([4, 3]), tensorType([4])], { count: null, ignoreIndex: -100 }),
    /i32 targets, got f32\[4, 3\] and f32\[4\]/,
  ],
  [
    'a gradient that is no scalar',
    () =>
      crossEntropyGrad.infer([tensorType([4, 3]), labels(4), tensorType([1])], {
        count: null,
        ignoreIndex: -100,
      }),
    /dloss must have 0 dimensions/,
  ],
  [
    'targets of another shape',
    () => crossEntropyRows.infer([tensorType([4, 3, 2]), labels(4)], rowsAttrs),
    /one target per row of \[4, 3, 2\], that is \[4, 2\], got \[4\]/,
  ],
  [
    'weights for other classes',
    () => crossEntropyRows.infer([tensorType([4, 3]), labels(4), tensorType([4])], rowsAttrs),
    /a weight for each of 3 classes, got f32\[4\]/,
  ],
  [
    'more than there are',
    () => topK.infer([tensorType([4, 3])], { k: 4, axis: 1, isLargest: true }),
    /topk: k must be from 0 to the size of the dimension.*, got k 4 along dimension 1 of f32\[4, 3\]/,
  ],
  [
    'the largest of nothing',
    () => amax.infer([tensorType([4, 0])], { axes: [1], keepDims: false }),
    /amax: expected at least one element along axes \[1\], got \[4, 0\]/,
  ],
  [
    'an axis that is not there',
    () => softmax.infer([tensorType([4, 3])], { axis: 2 }),
    /softmax: expected an axis.*, got axis 2 of f32\[4, 3\]/,
  ],
  [
    'the top 0',
    () => topKCorrect.infer([tensorType([4, 3]), labels(4)], { k: 0, count: null }),
    /k must be a whole number of at least 1, got 0/,
  ],
  [
    'a slice past the end',
    () => adam.infer([flat, flat, flat, flat], { ...adamAttrs, start: 4, length: 5 }),
    /adam: the slice must be within 0..8, got start 4 and length 5/,
  ],
  [
    'moments of another length',
    () => adam.infer([flat, flat, flat, tensorType([7])], adamAttrs),
    /adam: n must agree, got 8 in param.* and 7 in v/,
  ],
  [
    'a setting without a slot',
    () => adam.infer([flat, flat, flat, flat], { ...adamAttrs, settings: { decay: slot } }),
    /adam: expected the settings decay, l2, .*, got decay/,
  ],
  [
    'a parameter of integers',
    () =>
      sgd.infer([labels(8), labels(8)], {
        settings: { lr: slot, weightDecay: slot },
        start: 0,
        length: 8,
      }),
    /sgd: param must be f32, got i32\[8\]/,
  ],
  [
    'a hash of more than there is',
    () => paramHash.infer([flat], { length: 9 }),
    /paramHash: length must be within 0..8, got 9/,
  ],
]

for (const [name, infer, text] of refused) {
  test(`${name}: refused, and the text says why`, () => {
    expect(infer).toThrow(ShapeError)
    expect(infer).toThrow(text)
  })
}
