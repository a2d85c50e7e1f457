import { compile } from '../../src/graph/compile/compile.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { RunOutputs } from '../../src/graph/plan/step-program.ts'
import type { HookHandle } from '../../src/graph/trace/gradient-hooks.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Linear } from '../../src/nn/layers.ts'
import { Module } from '../../src/nn/module.ts'
import type { GradientList } from '../../src/nn/module-hooks.ts'
import { countElements } from '../../src/util/shape.ts'
import type golden from '../golden/modules.json'
import { formulaUniform } from './formula-data.ts'

type HookCase = (typeof golden.hooks)[number]

/** modules.py's: the hidden tensor goes into `second` and around it. */
class Net extends Module {
  readonly first = new Linear(3, 4)
  readonly second = new Linear(4, 4)
  onHidden: ((gradient: Tensor) => Tensor | undefined) | undefined

  forward(x: Tensor): Tensor {
    const hidden = this.first.forward(x).tanh()
    if (this.onHidden) hidden.registerHook(this.onHidden)
    return this.second.forward(hidden).add(hidden)
  }
}

/** A state drawn from modules.json's seeds. */
export const drawnState = (weights: readonly { key: string; shape: number[]; seed: number }[]) =>
  Object.fromEntries(
    weights.map(({ key, shape, seed }) => [
      key,
      { shape, data: formulaUniform(seed, countElements(shape), 1) },
    ]),
  )

/** A case of modules.json with the hooks that modules.py registers; `isRemoved` takes them all away again first. */
export async function runHooked(
  { name, weights }: HookCase,
  options: { runtime: AnyRuntime; useNaiveKernels?: boolean },
  isRemoved = false,
): Promise<RunOutputs> {
  const model = new Net()
  model.loadStateDict(drawnState(weights))
  const { first, second } = model
  const x = new Parameter([5, 3], formulaUniform(90, 15, 1))
  const seen: Record<string, Tensor> = {}
  const see = (key: string, gradients: GradientList) => {
    gradients.forEach((gradient, i) => {
      if (gradient) seen[`${key}${i}`] = gradient
    })
  }
  const handles: HookHandle[] = []
  const isCase = (one: string) => name === one || name === 'all at once'
  if (isCase('pre-hook replaces')) {
    handles.push(
      second.registerForwardPreHook((_, [input]) => [(input as Tensor).mul(1.5)]),
      second.registerForwardPreHook((_, [input]) => (input as Tensor).add(0.25)),
    )
  }
  if (isCase('forward hook replaces')) {
    handles.push(
      first.registerForwardHook((_, __, output) => output.add(output.square().mul(0.25))),
      first.registerForwardHook((_, [input], output) => output.mul((input as Tensor).sum())),
    )
  }
  if (isCase('backward hook sees')) {
    for (const [at, module] of Object.entries({ second, model })) {
      handles.push(
        module.registerFullBackwardHook((_, gradInput, gradOutput) => {
          see(`${at} in`, gradInput)
          see(`${at} out`, gradOutput)
          return undefined
        }),
      )
    }
  }
  if (isCase('backward hook replaces')) {
    handles.push(
      second.registerFullBackwardHook((_, [dx], [dy]) => [dx!.mul(2).add(dy!)]),
      second.registerFullBackwardHook((_, gradInput) => {
        see('after', gradInput)
        return gradInput[0]!.sub(0.5)
      }),
    )
  }
  if (isCase('tensor hooks')) {
    model.onHidden = (gradient) => {
      see('hidden', [gradient])
      return gradient.clamp(-0.5, 0.5)
    }
    handles.push(
      first.weight.registerHook((gradient) => gradient.mul(3)),
      first.weight.registerHook((gradient) => gradient.add(1)),
    )
  }
  if (isRemoved) {
    model.onHidden = undefined
    for (const handle of handles) handle.remove()
  }
  const program = await compile(
    () => {
      const y = model.forward(x)
      y.square().sum().backward()
      const gradients = [...model.namedParameters()].map(([key, parameter]) => [
        `d${key}`,
        parameter.grad!,
      ])
      return { y, dx: x.grad!, ...Object.fromEntries(gradients), ...seen }
    },
    {},
    options,
  )
  const outputs = await program.run({})
  program.destroy()
  return outputs
}
