import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import {
  type ConvTransposeOptions,
  convTranspose2d,
} from '../../src/graph/functions/convolution.ts'
import {
  type MaxPoolOptions,
  maxPool1d,
  maxPool2d,
  type PooledWithIndices,
} from '../../src/graph/functions/pooling.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { Outputs } from '../../src/graph/plan/prepare.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { AvgPool2d, MaxPool1d, MaxPool2d } from '../../src/nn/pooling.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/pooling.json'
import {
  expectGolden,
  type GoldenCase,
  type GoldenTensor,
  typeOf,
  valuesOf,
} from '../support/golden.ts'
import { seedCases, titleOf } from '../support/golden-seeds.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Max pooling with dilation, ceil mode and indices, and transposed convolutions' output padding, against PyTorch (tests/golden/pooling.py).

afterEach(checkTestRuntime)

interface Case extends GoldenCase {
  readonly op: 'maxPool1d' | 'maxPool2d' | 'convTranspose2d'
  readonly options: Record<string, unknown>
  readonly indices: GoldenTensor | null
}

const cases = [...(golden.cases as unknown as Case[]), ...seedCases<Case>('pooling')]
const floats = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))

/** Output and, of pooling, indices, by the function or by the module. */
function forwardOf({ op, options }: Case): (x: Record<string, Tensor>) => [Tensor, Tensor?] {
  if (op === 'convTranspose2d') {
    return ({ x, w, b }) => [convTranspose2d(x, w, b, options as ConvTransposeOptions)]
  }
  const { kernel, ...more } = options
  return op === 'maxPool1d'
    ? ({ x }) =>
        maxPool1d(x, kernel as number, { ...(more as MaxPoolOptions<number>), returnIndices: true })
    : ({ x }) => maxPool2d(x, kernel as 2, { ...(more as MaxPoolOptions), returnIndices: true })
}

describe.each([false, true])('against PyTorch, naive: %s', (useNaiveKernels) => {
  test.each(cases.map((one) => [`${one.op}, ${titleOf(one)}`, one] as const))(
    '%s',
    async (_, found) => {
      const { dy, ...inputs } = found.inputs
      const leaves = Object.entries(inputs).map(
        ([name, tensor]) => [name, new Parameter(tensor.shape, floats(tensor))] as const,
      )
      const program = await compile(
        (given): Outputs => {
          const [y, indices] = forwardOf(found)(Object.fromEntries(leaves))
          y.mul(given['dy']).sum().backward()
          return {
            y,
            ...(indices && { indices }),
            ...Object.fromEntries(leaves.map(([name, leaf]) => [`d${name}`, leaf.grad!])),
          }
        },
        { dy: typeOf(dy) },
        { runtime: await testRuntime(), useNaiveKernels },
      )
      const got = await program.run({ dy: floats(dy) })
      program.destroy()
      expectGolden(got, found.outputs)
      if (found.indices) expect([...got['indices']]).toEqual([...valuesOf(found.indices)])
    },
  )
})

const image = (size: readonly number[]) => ({ x: tensorType(size) })
const tryOut = (size: readonly number[], forward: (x: Tensor) => Tensor) =>
  compile(({ x }) => ({ y: forward(x) }), image(size), { runtime: new ReferenceRuntime() })

test('modules pass their options on, and withIndices returns what PyTorch does with return_indices', async () => {
  const both = (pair: PooledWithIndices, name: string) => ({
    [`${name} y`]: pair[0],
    [`${name} at`]: pair[1],
  })
  const program = await compile(
    ({ x }): Outputs => {
      const wide = new MaxPool2d(2, { stride: 2, ceilMode: true })
      const row = new MaxPool1d(2, { stride: 1, dilation: 2 })
      return {
        ...both(wide.withIndices(x), '2d'),
        plain: wide.forward(x),
        ...both(row.withIndices(x.reshape([1, 1, 9])), '1d'),
      }
    },
    image([1, 1, 3, 3]),
    { runtime: new ReferenceRuntime() },
  )
  const got = await program.run({ x: Float32Array.of(1, 2, 9, 8, 4, 3, 5, 6, 7) })
  // torch.nn.MaxPool2d(2, 2, ceil_mode=True, return_indices=True), MaxPool1d(2, 1, dilation=2, return_indices=True)
  expect([...got['2d y']]).toEqual([8, 9, 6, 7])
  expect([...got['2d at']]).toEqual([3, 2, 7, 8])
  expect([...got['plain']]).toEqual([8, 9, 6, 7])
  expect([...got['1d y']]).toEqual([9, 8, 9, 8, 5, 6, 7])
  expect([...got['1d at']]).toEqual([2, 3, 2, 3, 6, 7, 8])
})

test('options that there are not, and windows without a pixel, are refused', async () => {
  expect(() => new MaxPool2d(2, { ceil_mode: true } as never)).toThrow(
    /MaxPool2d: expected options among stride, padding, dilation, ceilMode, got "ceil_mode"/,
  )
  expect(() => new AvgPool2d(2, { dilation: 2 } as never)).toThrow(/AvgPool2d: .* got "dilation"/)
  expect(() => new MaxPool1d(2, 2 as never)).toThrow(/MaxPool1d: expected an object with options/)
  await expect(
    tryOut([1, 1, 2, 2], (x) => maxPool2d(x, 2, { padding: 1, dilation: 3 })),
  ).rejects.toThrow(/contain a pixel of it/)
  await expect(tryOut([1, 1, 4, 4], (x) => maxPool2d(x, 2, { dilation: 4 }))).rejects.toThrow(
    /window must fit into the padded image/,
  )
  await expect(tryOut([1, 1, 4, 4], (x) => maxPool2d(x, 2, { dilation: 0 }))).rejects.toThrow(
    /dilation \[0, 0\]/,
  )
})
