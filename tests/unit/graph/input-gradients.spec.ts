import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { arange, cast, full, ones, zeros } from '../../../src/graph/functions/shape.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { checkAdded, checkAdversarial, checkSaliency } from '../../support/input-gradients.ts'

const runtime = new ReferenceRuntime()
const x = tensorType([3])
const data = { x: Float32Array.of(1, -2, 3) }

/** What the function's outputs are on the CPU. */
async function outputsOf(fn: (inputs: Record<string, Tensor>) => Record<string, Tensor>) {
  const outputs = await (await compile(fn, { x }, { runtime })).run(data)
  return Object.fromEntries(Object.entries(outputs).map(([key, values]) => [key, [...values]]))
}

const refusal = (fn: (inputs: Record<string, Tensor>) => Tensor) =>
  compile((inputs) => ({ y: fn(inputs) }), { x }, { runtime }).then(
    () => 'nothing was refused',
    ({ code, message }) => `${code} ${message}`,
  )

test('saliency maps and hidden gradients are those of PyTorch', () => checkSaliency(runtime))
test('adversarial training is that of PyTorch', () => checkAdversarial(runtime))
test('gradients add up and are constants, as in PyTorch', () => checkAdded(runtime))

test('tensors that functions make may require a gradient', async () => {
  const outputs = await outputsOf(() => {
    const range = arange(1, 4, { requiresGrad: true })
    range.pow(2).sum().backward()
    const halves = arange(0, 2, 0.5, { requiresGrad: true })
    const made = [
      full([2], 3, { requiresGrad: true }),
      zeros([2], { requiresGrad: true }),
      ones([2], { dtype: 'f32', requiresGrad: true }),
    ]
    made
      .reduce((product, tensor) => product.add(tensor.mul(tensor)), zeros([2]))
      .sum()
      .backward()
    halves.square().sum().backward()
    return {
      range: range.grad!,
      halves: halves.grad!,
      full: made[0].grad!,
      zeros: made[1].grad!,
      ones: made[2].grad!,
      plain: ones([2], 'i32'),
    }
  })
  expect(outputs).toEqual({
    range: [2, 4, 6],
    halves: [0, 1, 2, 3],
    full: [6, 6],
    zeros: [0, 0],
    ones: [2, 2],
    plain: [1, 1],
  })
})

test('a computed tensor may become a leaf, floor gives zeros, and detached tensors get no gradient', async () => {
  const outputs = await outputsOf(({ x }) => {
    const y = x.mul(2).requiresGrad_()
    expect([x.requiresGrad, y.requiresGrad, y.mul(3).requiresGrad]).toEqual([false, true, true])
    expect([y.detach().requiresGrad, y.gt(0).requiresGrad]).toEqual([false, false])
    y.square().sum().backward()
    expect([x.grad, y.grad?.requiresGrad]).toEqual([undefined, false])
    const first = y.grad!
    y.grad = undefined
    y.floor().sum().backward()
    const floored = y.grad!
    y.requiresGrad = false
    expect(y.requiresGrad).toBe(false)
    return { first, floored }
  })
  expect(outputs).toEqual({ first: [4, -8, 12], floored: [0, 0, 0] })
})

test('frozen parameters get no gradient, the input before them does', async () => {
  const weight = new Parameter([3], Float32Array.of(2, 3, 4))
  weight.requiresGrad_(false)
  const { dx } = await outputsOf(({ x }) => {
    x.requiresGrad_().mul(weight).sum().backward()
    expect(weight.grad).toBeUndefined()
    return { dx: x.grad! }
  })
  expect(dx).toEqual([2, 3, 4])
})

test('accumulated steps weigh their loss, not the gradient by an input', async () => {
  const weight = new Parameter([3], Float32Array.of(2, 3, 4))
  const optimizer = new SGD([weight], { lr: 1 })
  const program = await compileAccumulated(
    ({ x }) => {
      optimizer.zeroGrad()
      x.requiresGrad_().mul(weight).sum().backward()
      optimizer.step()
      return { dx: x.grad! }
    },
    { x },
    { runtime, steps: 2 },
  )
  for (const _ of [1, 2]) expect([...(await program.run(data)).dx]).toEqual([2, 3, 4])
  expect([...(await weight.read())]).toEqual([1, 5, 1])
})

const nothing =
  /graph\.misuse backward: the loss does not depend on any tensor that requires a gradient/

test.each<[string, (inputs: Record<string, Tensor>) => Tensor]>([
  ['an input that asked for none', ({ x }) => x.sum()],
  ['what was detached', ({ x }) => x.requiresGrad_().detach().sum()],
  ['a comparison', ({ x }) => x.requiresGrad_().gt(0).sum()],
  ['integers', ({ x }) => cast(cast(x.requiresGrad_(), 'i32'), 'f32').sum()],
  ["the seed's range", () => arange(1, 4).pow(2).sum()],
])('backward of %s throws instead of doing nothing', async (_, loss) => {
  expect(
    await refusal((inputs) => {
      const y = loss(inputs)
      y.backward()
      return y
    }),
  ).toMatch(nothing)
})

test('backward of frozen parameters alone throws', async () => {
  const weight = new Parameter([3], Float32Array.of(2, 3, 4))
  weight.requiresGrad = false
  const given = (x: Tensor) => x.mul(weight).sum()
  expect(
    await refusal(({ x }) => {
      given(x).backward()
      return x
    }),
  ).toMatch(nothing)
})

test('requiresGrad_ is refused for integers and computed tensors', async () => {
  expect(await refusal(() => arange(1, 4, 1, { dtype: 'i32', requiresGrad: true }))).toMatch(
    /graph\.misuse requiresGrad_: expected a float tensor, got i32/,
  )
  expect(await refusal(({ x }) => x.requiresGrad_().mul(2).requiresGrad_(false))).toMatch(
    /graph\.misuse requiresGrad_: this tensor is computed from tensors that require a gradient/,
  )
  expect(
    await refusal(({ x }) => {
      x.grad = ones([2])
      return x
    }),
  ).toMatch(/shape\.mismatch grad: must have the shape of its tensor, \[3\], got \[2\]/)
})
