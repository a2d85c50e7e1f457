import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { checkpoint } from '../../../src/graph/functions/checkpoint.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { prepare, type TracedFunction } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { charRnn } from '../../../src/nn/char-rnn.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import {
  type Lengths,
  packPaddedSequence,
  padPackedSequence,
} from '../../../src/nn/packed-sequence.ts'
import { LSTM } from '../../../src/nn/recurrent.ts'
import type { LastStates } from '../../../src/nn/recurrent-base.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/modules.json'
import { expectGolden } from '../../support/golden.ts'
import { runHooked } from '../../support/hook-run.ts'
import { models } from '../../support/models.ts'
import { planningTarget } from '../../support/planning-target.ts'

const runtime = new ReferenceRuntime()

/** Traces, and nothing else. */
const trace = (fn: TracedFunction, inputs = { x: tensorType([2, 3]) }) =>
  prepare(planningTarget, fn, inputs)

const dispatches = (fn: TracedFunction) => trace(fn).calls.map(({ op }) => op.name)

describe("PyTorch's gradients", () => {
  for (const sample of golden.hooks) {
    test(sample.name, async () => {
      const got = await runHooked(sample, { runtime })
      expectGolden(got, sample.outputs)
    })
  }

  test('hooks that were removed do nothing', async () => {
    const all = golden.hooks.at(-1)!
    const plain = await runHooked({ ...all, name: 'no hooks' }, { runtime })
    expect(await runHooked(all, { runtime }, true)).toEqual(plain)
    expect(await runHooked(all, { runtime })).not.toEqual(plain)
  })
})

describe('forward hooks', () => {
  test('run inside of other modules, in the order of torch', () => {
    const order: string[] = []
    const inner = new Sequential(new Linear(3, 3), new ReLU())
    const model = new Sequential(inner, new Linear(3, 1))
    for (const [path, module] of model.namedModules()) {
      module.registerForwardPreHook(() => void order.push(`> ${path}`))
      module.registerForwardHook(() => void order.push(`< ${path}`))
    }
    trace(({ x }) => ({ y: model.forward(x) }))
    expect(order).toEqual([
      '> ',
      '> 0',
      '> 0.0',
      '< 0.0',
      '> 0.1',
      '< 0.1',
      '< 0',
      '> 1',
      '< 1',
      '< ',
    ])
  })

  test('get the module and all arguments, and may replace all', () => {
    class Two extends Module {
      forward(x: Tensor, factor: unknown = 1): Tensor {
        return x.mul(factor as number)
      }
    }
    const seen: unknown[] = []
    const module = new Two()
    module.registerForwardPreHook((own, args) => {
      seen.push(own, ...args.slice(1))
      return [args[0], 7]
    })
    module.registerForwardHook((_, args) => void seen.push(...args.slice(1)))
    trace(({ x }) => ({ y: module.forward(x, 3) }))
    expect(seen).toEqual([module, 3, 7])
  })

  test('of a forward that is a field or was replaced run too', () => {
    class Field extends Module {
      override forward = (x: Tensor): Tensor => x.mul(2)
    }
    const replaced = new ReLU()
    replaced.forward = (x) => x.mul(3)
    let calls = 0
    for (const module of [new Field(), replaced]) {
      module.registerForwardHook(() => void calls++)
      trace(({ x }) => ({ y: module.forward(x) }))
    }
    expect(calls).toBe(2)
  })

  test('run for each call, not for each step, and not after remove()', async () => {
    const module = new ReLU()
    let calls = 0
    const handle = module.registerForwardHook(() => void calls++)
    const step: TracedFunction = ({ x }) => ({ y: module.forward(module.forward(x)) })
    const program = await compile(step, { x: tensorType([1]) }, { runtime })
    for (let i = 0; i < 3; i++) await program.run({ x: Float32Array.of(1) })
    program.destroy()
    expect(calls).toBe(2)
    handle.remove()
    handle.remove()
    trace(step)
    expect(calls).toBe(2)
  })

  test('that throw leave the module as it was', () => {
    const module = new ReLU()
    const handle = module.registerForwardHook(() => {
      throw new Error('no')
    })
    const step: TracedFunction = ({ x }) => ({ y: module.forward(x) })
    expect(() => trace(step)).toThrow('no')
    handle.remove()
    let calls = 0
    module.registerForwardHook(() => void calls++)
    trace(step)
    expect(calls).toBe(1)
  })

  test('show intermediate results', async () => {
    const model = new Sequential(new ReLU(), new ReLU())
    const inside: Tensor[] = []
    model.children()[0][1].registerForwardHook((_, __, output) => void inside.push(output))
    const program = await compile(
      ({ x }) => {
        const y = model.forward(x).mul(2)
        return { y, hidden: inside[0] }
      },
      { x: tensorType([2]) },
      { runtime },
    )
    expect(await program.run({ x: Float32Array.of(-1, 3) })).toEqual({
      y: Float32Array.of(0, 6),
      hidden: Float32Array.of(0, 3),
    })
    program.destroy()
  })

  test('of a recurrent layer run once, called by forward or withState', () => {
    const lstm = new LSTM(3, 2)
    const shapes: unknown[] = []
    lstm.registerForwardHook<Tensor | (LastStates & { output: Tensor })>((_, __, output) => {
      shapes.push('hn' in output ? [output.output.shape, output.hn.shape] : output.shape)
      return undefined
    })
    trace(({ x }) => ({ y: lstm.forward(x), z: lstm.withState(x).output }), {
      x: tensorType([4, 2, 3]),
    })
    expect(shapes).toEqual([
      [4, 2, 2],
      [
        [4, 2, 2],
        [1, 2, 2],
      ],
    ])
    const model = charRnn(5, { embeddingSize: 3, hiddenSize: 2 })
    let calls = 0
    for (const module of [model, model.lstm]) module.registerForwardHook(() => void calls++)
    trace(({ x }) => ({ y: model.forward(x) }), { x: tensorType([2, 4], 'i32') } as never)
    expect(calls).toBe(2)
  })
})

describe('backward hooks', () => {
  const step =
    (model: Module): TracedFunction =>
    ({ x }) => {
      const loss = model.forward(x).square().mean()
      loss.backward()
      return { loss, ...Object.fromEntries(model.parameters().map((p, i) => [`d${i}`, p.grad!])) }
    }
  const make = () => new Sequential(new Linear(3, 4), new ReLU(), new Linear(4, 2))

  test('cost no dispatch, registered or not', () => {
    const plain = dispatches(step(make()))
    const model = make()
    let calls = 0
    for (const module of model.modules()) {
      module.registerForwardPreHook(() => undefined)
      module.registerForwardHook(() => undefined)
      module.registerFullBackwardHook(() => void calls++)
    }
    model.parameters()[0].registerHook(() => void calls++)
    expect(dispatches(step(model))).toEqual(plain)
    expect(calls).toBe(5)
  })

  test('nor where kernels join over many modules', () => {
    const config = { vocabSize: 7, blockSize: 4, layers: 2, heads: 2, width: 8 }
    const count = (isHooked: boolean) => {
      const model = models.gpt(config)
      const optimizer = new SGD(model.parameters())
      let calls = 0
      if (isHooked) {
        for (const module of model.modules()) module.registerFullBackwardHook(() => void calls++)
      }
      const { plan, calls: all } = trace(
        ({ x }) => {
          const loss = model.forward(x).mean()
          loss.backward()
          optimizer.step()
          return { loss }
        },
        { x: tensorType([2, 4], 'i32') } as never,
      )
      // All are called but the list of blocks and the table of positions, which is read as it is.
      if (isHooked) expect(calls).toBe([...model.modules()].length - 2)
      return [all.length, plan.peakBytes]
    }
    expect(count(true)).toEqual(count(false))
  })

  test('of data that has no gradient get undefined, and may not replace it', () => {
    const model = make()
    const gradients: unknown[] = []
    const handle = model.registerFullBackwardHook((_, gradInput, [dy]) => {
      gradients.push(gradInput, dy!.shape)
      return undefined
    })
    trace(step(model))
    expect(gradients).toEqual([[undefined], [2, 2]])
    handle.remove()
    model.registerFullBackwardHook((_, __, [dy]) => [dy])
    expect(() => trace(step(model))).toThrow(/^Sequential: .*no input needs one/)
  })

  test('refuse a wrong number of gradients, and gradients of another shape', () => {
    const model = make()
    const [, relu] = [...model.modules()].slice(1)
    const first = relu.registerFullBackwardHook(() => [])
    expect(() => trace(step(model))).toThrow(/^ReLU: expected 1 gradients.*got 0/)
    first.remove()
    relu.registerFullBackwardHook((_, [dx]) => dx!.sum())
    expect(() => trace(step(model))).toThrow(/a gradient of \[2, 4\], got \[\]/)
  })

  test("see one call's gradients each, of each backward", () => {
    const shared = new Linear(3, 3)
    const outputs: Tensor[] = []
    shared.registerFullBackwardHook((_, __, [dy]) => void outputs.push(dy!))
    trace(({ x }) => {
      const y = shared.forward(shared.forward(x))
      y.sum().backward()
      y.mean().backward()
      return { y }
    })
    expect(outputs).toHaveLength(4)
    expect(new Set(outputs.map(({ value }) => value)).size).toBe(4)
  })

  test('several inputs and outputs, one of them without a gradient', async () => {
    class Cross extends Module {
      forward(a: Tensor, ...[b]: unknown[]): Tensor {
        return [a.mul(b as Tensor), a.detach()] as unknown as Tensor
      }
    }
    const module = new Cross()
    const [a, b] = [2, 3].map((value) => new Parameter([1], Float32Array.of(value)))
    module.registerFullBackwardHook((_, [da, db], gradOutput) => {
      expect(gradOutput[1]).toBeUndefined()
      return [db, da]
    })
    const program = await compile(
      () => {
        const [y] = module.forward(a, b) as unknown as Tensor[]
        y.sum().backward()
        return { da: a.grad!, db: b.grad! }
      },
      {},
      { runtime },
    )
    expect(await program.run({})).toEqual({ da: Float32Array.of(2), db: Float32Array.of(3) })
    program.destroy()
  })

  test("see a recurrent layer's packed sequences and states, without a further dispatch", async () => {
    const lstm = new LSTM(2, 3)
    const x = new Parameter(
      [3, 2, 2],
      Float32Array.from({ length: 12 }, (_, i) => i / 8 - 0.5),
    )
    const h0 = new Parameter([1, 2, 3], new Float32Array(6).fill(0.25))
    const seen: (readonly number[] | undefined)[][] = []
    const step: TracedFunction = ({ lengths = [3, 1] }: Partial<Record<string, Lengths>>) => {
      const { output } = lstm.withState(packPaddedSequence(x, lengths as Lengths), { h0 })
      padPackedSequence(output).output.square().sum().backward()
      return { dx: x.grad!, dh0: h0.grad! }
    }
    const run = async () => {
      const program = await compile(step, {}, { runtime })
      const outputs = await program.run({})
      program.destroy()
      return { outputs, count: program.dispatchCount }
    }
    const plain = await run()
    const handle = lstm.registerFullBackwardHook((_, gradInput, gradOutput) => {
      seen.push(...[gradInput, gradOutput].map((list) => list.map((one) => one?.shape)))
      return undefined
    })
    expect(await run()).toEqual(plain)
    expect(seen).toEqual([
      [
        [3, 2, 2],
        [1, 2, 3],
      ],
      [[3, 2, 3], undefined, undefined],
    ])
    seen.length = 0
    trace(step, { lengths: tensorType([2], 'i32') } as never)
    expect(seen.map(({ length }) => length)).toEqual([2, 3])
    handle.remove()
    lstm.registerFullBackwardHook((_, [dx, dh0]) => [dx!.mul(2), dh0!.mul(4)])
    const { outputs } = await run()
    expect([...outputs['dx']]).toEqual([...plain.outputs['dx']].map((value) => value * 2))
    expect([...outputs['dh0']]).toEqual([...plain.outputs['dh0']].map((value) => value * 4))
  })

  test('see arrays and records of tensors', () => {
    class Total extends Module {
      forward(x: Tensor, ...[more]: unknown[]): Tensor {
        const { list } = more as { list: Tensor[] }
        return { parts: [list.reduce((sum, one) => sum.add(one), x)] } as unknown as Tensor
      }
    }
    const total = new Total()
    const counts: number[][] = []
    total.registerFullBackwardHook((_, gradInput, gradOutput) => {
      counts.push([gradInput, gradOutput].map((list) => list.filter(Boolean).length))
      return undefined
    })
    const [a, b] = [1, 2].map((value) => new Parameter([2, 3], new Float32Array(6).fill(value)))
    trace(({ x }) => {
      const { parts } = total.forward(x, { list: [a, b] }) as unknown as { parts: Tensor[] }
      parts[0].sum().backward()
      return { da: a.grad!, db: b.grad! }
    })
    expect(counts).toEqual([[2, 1]])
  })

  test('work inside a checkpoint, and on f16 gradients', async () => {
    const run = async (isCheckpointed: boolean, isHalf: boolean) => {
      const weight = new Parameter(
        [4, 4],
        Float32Array.from({ length: 16 }, (_, i) => i / 16),
      )
      const layer = new Linear(4, 4)
      layer.weight.assign(Float32Array.from({ length: 16 }, (_, i) => (i % 5) / 8))
      layer.bias!.assign(new Float32Array(4))
      layer.registerFullBackwardHook((_, [dx]) => dx!.float().mul(2))
      const program = await compile(
        ({ x }) => {
          const loss = autocast({ enabled: isHalf }, () => {
            const body = (input: Tensor) => layer.forward(input.matmul(weight).relu()).relu()
            return (isCheckpointed ? checkpoint(body, x) : body(x)).float().sum()
          })
          loss.backward()
          return { dw: weight.grad!, dl: layer.weight.grad! }
        },
        { x: tensorType([2, 4]) },
        { runtime },
      )
      const result = await program.run({ x: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8) })
      program.destroy()
      return result
    }
    const plain = await run(false, false)
    expect(await run(true, false)).toEqual(plain)
    expect(await run(true, true)).toEqual(plain)
  })
})

describe('tensor hooks', () => {
  test('see the sum over all uses, those before the hook too', async () => {
    const weight = new Parameter([1], Float32Array.of(3))
    const program = await compile(
      () => {
        const hidden = weight.mul(2)
        const before = hidden.square()
        let seen: Tensor | undefined
        hidden.registerHook((gradient) => {
          seen = gradient
          return undefined
        })
        before.add(hidden).sum().backward()
        return { seen: seen!, dw: weight.grad! }
      },
      {},
      { runtime },
    )
    expect(await program.run({})).toEqual({ seen: Float32Array.of(13), dw: Float32Array.of(26) })
    program.destroy()
  })

  test('run on a tensor that asked for a gradient and depends on no parameter', async () => {
    const program = await compile(
      ({ x }) => {
        const hidden = x.mul(2).requiresGrad_()
        let seen: Tensor | undefined
        hidden.registerHook((gradient) => {
          seen = gradient
          return undefined
        })
        hidden.square().sum().backward()
        return { seen: seen! }
      },
      { x: tensorType([2]) },
      { runtime },
    )
    expect(await program.run({ x: Float32Array.of(1, 3) })).toEqual({
      seen: Float32Array.of(4, 12),
    })
    program.destroy()
  })

  test('on the loss replace the gradient that backward begins with', async () => {
    const weight = new Parameter([2], Float32Array.of(1, 2))
    const program = await compile(
      () => {
        const loss = weight.square().sum()
        loss.registerHook((gradient) => gradient.mul(10))
        loss.backward()
        return { dw: weight.grad! }
      },
      {},
      { runtime },
    )
    expect(await program.run({})).toEqual({ dw: Float32Array.of(20, 40) })
    program.destroy()
  })

  test('are refused where there is no gradient', () => {
    const weight = new Parameter([3], new Float32Array(3))
    const misuse = /^registerHook: this tensor does not require a gradient/
    const hook = () => undefined
    trace(({ x }) => {
      expect(() => x.registerHook(hook)).toThrow(misuse)
      expect(() => weight.mul(2).detach().add(1).registerHook(hook)).toThrow(misuse)
      expect(() => x.add(weight).argmax(0).registerHook(hook)).toThrow(misuse)
      x.add(weight).registerHook(hook)
      return { x }
    })
    weight.requiresGrad = false
    expect(() => weight.registerHook(hook)).toThrow(misuse)
  })

  test('of a parameter last over traces until they are removed', () => {
    const model = new Linear(3, 1)
    let calls = 0
    const handle = model.weight.registerHook(() => void calls++)
    const step: TracedFunction = ({ x }) => {
      const loss = model.forward(x).sum()
      loss.backward()
      return { loss }
    }
    trace(step)
    trace(step)
    handle.remove()
    trace(step)
    expect(calls).toBe(2)
  })
})
