import { afterEach, expect, test, vi } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'

// Parameters behind the loss that nobody lists: JavaScript's #private fields.

const runtime = new ReferenceRuntime()
afterEach(() => vi.restoreAllMocks())

class Hidden extends Module {
  readonly head = new Linear(2, 1)
  readonly #body = new Linear(3, 2)
  forward(x: Tensor): Tensor {
    return this.head.forward(this.#body.forward(x))
  }
  freeze() {
    this.#body.weight.requiresGrad = false
    this.#body.bias!.requiresGrad = false
    return this
  }
}

const stepOf = (model: Module, optimizer: SGD) =>
  compile(
    ({ x }) => {
      model.forward(x).sum().backward()
      optimizer.step()
      return {}
    },
    { x: tensorType([2, 3]) },
    { runtime },
  )

const warnings = () => vi.spyOn(console, 'warn').mockImplementation(() => undefined)

test('a layer in a #private field is reported, once', async () => {
  const warn = warnings()
  const model = new Hidden()
  const optimizer = new SGD(model.parameters())
  await stepOf(model, optimizer)
  await stepOf(model, optimizer)
  expect(warn).toHaveBeenCalledTimes(1)
  expect(warn.mock.calls[0][0]).toMatch(
    /2 parameters \("bias" \[2\], "weight" \[2, 3\]\) have gradients but belong to no optimizer: .* #private fields/,
  )
})

test('parameters that are frozen, listed but left out, or in another optimizer are not reported', async () => {
  const warn = warnings()
  const frozen = new Hidden().freeze()
  await stepOf(frozen, new SGD(frozen.parameters()))

  const [body, head] = [new Linear(3, 2), new Linear(2, 1)]
  const whole = new Sequential(body, head)
  expect(whole.parameters()).toHaveLength(4)
  await stepOf(whole, new SGD(head.parameters()))

  const bare = new Parameter([3], new Float32Array(3))
  const other = new SGD([bare])
  const scaled = new Linear(3, 1)
  const optimizer = new SGD(scaled.parameters())
  await compile(
    ({ x }) => {
      scaled.forward(x.mul(bare)).sum().backward()
      optimizer.step()
      other.step()
      return {}
    },
    { x: tensorType([2, 3]) },
    { runtime },
  )
  expect(warn).not.toHaveBeenCalled()
})

test.each([false, true])(
  'a layer that is replaced after the optimizer was created is reported as that, also when it is listed (%s)',
  async (isListed) => {
    const warn = warnings()
    const model = new Sequential(new Linear(3, 2), new Linear(2, 1))
    const optimizer = new SGD(model.parameters())
    model.set(1, new Linear(2, 4))
    if (isListed) model.parameters()
    await stepOf(model, optimizer)
    expect(warn).toHaveBeenCalledTimes(1)
    expect(warn.mock.calls[0][0]).toMatch(
      /^tabring optimizer.step: 2 parameters \("1.bias" \[4\], "1.weight" \[4, 2\]\) .*: they came into the model after the optimizer was created/,
    )
  },
)
