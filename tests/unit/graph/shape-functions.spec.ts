import { expect, test } from 'vitest'
import { embedding, indexSelect, oneHot } from '../../../src/graph/functions/index-ops.ts'
import { accuracy, crossEntropy, nllLoss } from '../../../src/graph/functions/losses.ts'
import { bmm, dot, outer } from '../../../src/graph/functions/matmul.ts'
import { pad } from '../../../src/graph/functions/pad.ts'
import {
  arange,
  cat,
  chunk,
  flatten,
  narrow,
  permute,
  repeat,
  roll,
  split,
  stack,
} from '../../../src/graph/functions/shape.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { type Tensor, TracedTensor } from '../../../src/graph/trace/tensor.ts'
import { Trace, withTrace } from '../../../src/graph/trace/trace.ts'
import { GraphValue } from '../../../src/graph/trace/value.ts'
import { Embedding } from '../../../src/nn/embedding.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { type DType, type Shape, tensorType } from '../../../src/util/shape.ts'

// Shapes that the functions give, and what they say to arguments that do not fit; values are held to PyTorch on the device.

const x = (shape: Shape, dtype: DType = 'f32') =>
  new TracedTensor(new GraphValue(tensorType(shape, dtype), { kind: 'input', name: 'x' }))

const traced = <T>(body: () => T): T => withTrace(new Trace(), body)

const shapes: [name: string, make: () => Tensor | Tensor[], expected: Shape | Shape[]][] = [
  ['expand', () => x([3, 1]).expand(2, -1, 4), [2, 3, 4]],
  ['squeeze of an axis that is not 1', () => x([3, 1]).squeeze(0), [3, 1]],
  ['squeeze of all', () => x([1, 3, 1]).squeeze(), [3]],
  ['unsqueeze at the end', () => x([3, 4]).unsqueeze(-1), [3, 4, 1]],
  ['slice to nothing', () => x([5]).slice(0, 4, 2), [0]],
  ['slice beyond the end', () => x([5]).slice(0, -2, 99), [2]],
  ['select', () => x([3, 4, 5]).select(1, -1), [3, 5]],
  ['stack', () => stack([x([2, 3]), x([2, 3])], -1), [2, 3, 2]],
  ['split', () => split(x([5, 2]), 2), [[2, 2], [2, 2], [1, 2]]], // biome-ignore format: a row
  ['chunk into more than there is', () => chunk(x([5]), 4), [[2], [2], [1]]],
  ['pad', () => pad(x([2, 3]), [1, 1]), [2, 5]],
  ['repeat', () => repeat(x([2, 3]), [4, 1, 2]), [4, 2, 6]],
  ['roll', () => roll(x([4, 3]), [5, -1], [0, 1]), [4, 3]],
  ['pad, mirrored', () => pad(x([2, 3]), [2, 1, 1, 0], 'reflect'), [3, 6]],
  ['arange', () => arange(0, 1, 0.25), [4]],
  ['arange up to an end', () => arange(5), [5]],
  ['flatten up to an end', () => flatten(x([2, 3, 4, 5]), 1, 2), [2, 12, 5]],
  ['flatten without elements', () => flatten(x([0, 3, 4]), 1), [0, 12]],
  ['oneHot', () => oneHot(x([2, 3], 'i32'), 7), [2, 3, 7]],
  ['embedding', () => new Embedding(10, 4).forward(x([2, 3], 'i32')), [2, 3, 4]],
  ['matmul of vectors', () => x([3]).matmul(x([3])), []],
  ['matmul of broadcast batches', () => x([4, 1, 2, 3]).matmul(x([5, 3, 6])), [4, 5, 2, 6]],
  ['outer', () => outer(x([3]), x([4])), [3, 4]],
]

test.each(shapes)('%s', (_, make, expected) => {
  const made = traced(make)
  expect(Array.isArray(made) ? made.map(({ shape }) => shape) : made.shape).toEqual(expected)
})

test('views that move nothing are the same memory', () => {
  const trace = new Trace()
  withTrace(trace, () => {
    for (const same of [
      x([3, 4]).permute(0, 1),
      x([1, 4]).transpose(0, 1),
      x([3, 4]).slice(1),
      x([3, 1]).expand(3, 1),
    ]) {
      expect(same.value.node?.op.name ?? 'reshape').toBe('reshape')
    }
  })
})

const refused: [name: string, make: () => unknown, text: RegExp][] = [
  [
    'permute',
    () => permute(x([2, 3]), [0, 0]),
    /permute: axes must be distinct dimensions, got \[0, 0\]/,
  ],
  [
    'permute of some',
    () => permute(x([2, 3]), [0]),
    /permute: axes must name each dimension of \[2, 3\]/,
  ],
  [
    'transpose',
    () => x([2, 3]).transpose(0, 2),
    /transpose: second must be a dimension of \[2, 3\], got 2/,
  ],
  ['expand', () => x([2, 3]).expand(2, 6), /expand: .*\[2, 3\] broadcasts, got \[2, 6\]/],
  ['slice', () => x([2]).slice(0, 0, 2, -1), /slice: .*step of at least 1, got .*-1/],
  ['narrow', () => narrow(x([2, 3]), 1, 2, 2), /narrow: .*dimension 1 of \[2, 3\], got start 2/],
  ['select', () => x([2, 3]).select(1, 3), /select: .*dimension 1 of \[2, 3\], got 3/],
  ['cat', () => cat([x([2, 3]), x([3, 2])]), /cat: tensors must agree .* f32\[2, 3\], f32\[3, 2\]/],
  ['cat of none', () => cat([]), /cat: tensors must be a list of at least one tensor/],
  [
    'stack',
    () => stack([x([2]), x([3])]),
    /stack: tensors must have the same shape, got \[2\] and \[3\]/,
  ],
  [
    'split',
    () => split(x([5]), [2, 2]),
    /split: size must add up to the size of dimension 0, got \[2, 2\]/,
  ],
  ['pad', () => pad(x([2]), [1]), /pad: expected a pair .*got \[1\]/],
  ['pad by too little', () => pad(x([2]), [-2, -1]), /pad: cannot remove 2 and 1 elements from/],
  ['arange', () => arange(0, 5, -1), /arange: a step of -1 does not lead from start 0 to end 5/],
  [
    'indexSelect',
    () => indexSelect(x([3]), 0, x([1, 2], 'i32')),
    /the index must have 1 dimension/,
  ],
  ['a float index', () => embedding(x([3]), x([4, 2])), /embedding: expected an integer index/],
  [
    'paddingIdx',
    () => embedding(x([3], 'i32'), x([4, 2]), { paddingIdx: 4 }),
    /embedding: paddingIdx must be a row of \[4, 2\], got 4/,
  ],
  ['bmm', () => bmm(x([2, 3, 4]), x([3, 4, 5])), /bmm: batches must agree/],
  ['dot', () => dot(x([2]), x([3])), /dot: lengths must agree, got \[2\] and \[3\]/],
  [
    'matmul',
    () => x([2, 3]).matmul(x([4, 5])),
    /matmul: inner dimensions must agree, got 3 in a\[2, 3\] and 4 in b/,
  ],
  [
    'matmul of batches',
    () => x([2, 3, 4]).matmul(x([3, 4, 5])),
    /matmul: dimension 0 must agree or be 1/,
  ],
  [
    'a linear layer with other features',
    () => new Linear(2, 4).forward(x([8, 3])),
    /^Linear: expected 2 input features, got 3 in x\[8, 3\]\. Correct inFeatures/,
  ],
  [
    'a linear layer that has a name',
    () => {
      const model = new Sequential(new Linear(2, 4))
      model.parameters()
      return model.forward(x([3]))
    },
    /^Linear "0": expected 2 input features, got 3 in x\[3\]\./,
  ],
  [
    'class labels as floats',
    () => crossEntropy(x([8, 3]), x([8])),
    /^crossEntropy: class labels must be i32, got f32\. Declare the input as tensorType\(\[8\], 'i32'\), or pass class probabilities of shape \[8, 3\]\.$/,
  ],
  [
    'class labels of places as floats',
    () => crossEntropy(x([8, 3, 5]), x([8, 5])),
    /class labels must be i32.* tensorType\(\[8, 5\], 'i32'\), or .* \[8, 3, 5\]/,
  ],
  [
    'the class label of one row as a float',
    () => nllLoss(x([3]), x([])),
    /^nllLoss: class labels must be i32, got f32\. Declare the input as tensorType\(\[\], 'i32'\)\.$/,
  ],
  [
    'class labels of nllLoss as floats',
    () => nllLoss(x([8, 3]), x([8])),
    /^nllLoss: class labels must be i32, got f32\. Declare the input as tensorType\(\[8\], 'i32'\)\.$/,
  ],
  [
    'labels before logits',
    () => crossEntropy(x([2], 'i32'), x([2, 3])),
    /^crossEntropy: expected float logits, then a label for each row of them, got i32\[2\], then f32\[2, 3\]\. Pass the logits first\.$/,
  ],
  [
    'labels as floats before logits',
    () => nllLoss(x([2]), x([2, 3])),
    /^nllLoss: expected float log-probabilities, .* got f32\[2\], then f32\[2, 3\]\. Pass the/,
  ],
  [
    'labels before outputs',
    () => accuracy(x([2], 'i32'), x([2, 3])),
    /^accuracy: expected float outputs, .* got i32\[2\], then f32\[2, 3\]\./,
  ],
  [
    'probabilities of another shape',
    () => crossEntropy(x([8, 3]), x([8, 2])),
    /crossEntropy: input and target must have the same shape/,
  ],
  [
    'a value of a tensor',
    () => x([]).item(),
    /^Tensor\.item: a tensor has no value while a step is traced\. Return it from the step/,
  ],
  [
    'a value of a parameter',
    () => new Parameter([1], Float32Array.of(1)).item(),
    /^Parameter\.item: .*await x\.read\(\)/,
  ],
  [
    'a parameter of a plain array',
    () => new Parameter([2, 1], [1, 2] as never),
    /^Parameter: data must be a Float32Array, got a plain array of 2\./,
  ],
  [
    'a buffer of doubles',
    () => new ModuleBuffer([2], Float64Array.of(1, 2) as never),
    /^ModuleBuffer: data must be a Float32Array, got Float64Array of 2\./,
  ],
  ['matmul of a scalar', () => x([]).matmul(x([2])), /matmul: both tensors must have at least one/],
]

test.each(refused)('%s is refused', (_, make, text) => {
  expect(() => traced(make)).toThrow(text)
})

test("an embedding's padding row begins as zeros, the others do not", async () => {
  const table = await new Embedding(5, 3, { paddingIdx: -2 }).weight.read()
  const rows = Array.from({ length: 5 }, (_, row) => table.slice(row * 3, row * 3 + 3))
  expect(rows.map((row) => row.every((value) => value === 0))).toEqual([
    false,
    false,
    false,
    true,
    false,
  ])
})
