import { requiresGradient } from '../graph/trace/backward.ts'
import { type HookHandle, hookGradients } from '../graph/trace/gradient-hooks.ts'
import { aliasOf, Tensor } from '../graph/trace/tensor.ts'
import { activeTrace, type Trace } from '../graph/trace/trace.ts'
import { TabringError } from '../util/errors.ts'
import { isPlain } from '../util/kind-of.ts'
import { checkArgument } from '../util/options.ts'
import type { Module } from './module.ts'
import { keepCleared } from './packed-sequence.ts'

/** May return replacements for the arguments: a tensor for a single one, or an array of all. */
export type ForwardPreHook<M = Module> = (
  module: M,
  args: readonly unknown[],
) => Tensor | readonly unknown[] | undefined

/** May return a replacement for the output. */
export type ForwardHook<M = Module, Output = Tensor> = (
  module: M,
  args: readonly unknown[],
  output: Output,
) => Output | undefined

/**
 * Gradients per argument or output; undefined for those without one.
 *
 * An argument or output that contains float tensors (a packed sequence, initial states, a list) has one entry for each of them.
 */
export type GradientList = readonly (Tensor | undefined)[]

/** May return replacements for the gradients of the arguments: a tensor for a single one, or an array of all. */
export type BackwardHook<M = Module> = (
  module: M,
  gradInput: GradientList,
  gradOutput: GradientList,
) => Tensor | GradientList | undefined

type Method = (...args: unknown[]) => unknown

/** The hooks of a module, and the way its calls take through them. */
export class ModuleHooks {
  readonly #module: Module
  readonly #before = new Map<object, ForwardPreHook>()
  readonly #after = new Map<object, ForwardHook<Module, unknown>>()
  readonly #backward = new Map<object, BackwardHook>()
  #isInside = false

  /** Methods of these names go through the hooks from here on, whichever class or object defines them. */
  constructor(module: Module, entryPoints: readonly string[]) {
    this.#module = module
    for (const name of entryPoints) {
      const plain = Reflect.get(module, name) as Method
      // Not enumerable: it is no part of the model.
      Object.defineProperty(module, name, {
        value: (...args: unknown[]) => this.#call(plain, args),
        configurable: true,
        writable: true,
      })
    }
  }

  before(hook: ForwardPreHook): HookHandle {
    return register('registerForwardPreHook', this.#before, hook)
  }

  after(hook: ForwardHook<Module, unknown>): HookHandle {
    return register('registerForwardHook', this.#after, hook)
  }

  backward(hook: BackwardHook): HookHandle {
    return register('registerFullBackwardHook', this.#backward, hook)
  }

  #call(plain: Method, given: unknown[]): unknown {
    // One entry point may call another, as an LSTM's forward its withState: that is one call of the module.
    if (this.#isInside) return plain.apply(this.#module, given)
    this.#isInside = true
    try {
      let args: readonly unknown[] = given
      for (const hook of [...this.#before.values()]) {
        const replaced = hook(this.#module, args)
        if (replaced !== undefined) args = Array.isArray(replaced) ? replaced : [replaced]
      }
      const backward = [...this.#backward.values()]
      const boundary = backward.length > 0 ? new Boundary(this.#module, backward) : undefined
      if (boundary) args = boundary.enter(args)
      let output = plain.apply(this.#module, [...args])
      for (const hook of [...this.#after.values()]) {
        output = hook(this.#module, args, output) ?? output
      }
      return boundary ? boundary.leave(output) : output
    } finally {
      this.#isInside = false
    }
  }
}

function register<Hook>(where: string, hooks: Map<object, Hook>, hook: Hook): HookHandle {
  checkArgument(where, 'hook', hook, typeof hook === 'function', 'a function')
  const handle: HookHandle = { remove: () => void hooks.delete(handle) }
  hooks.set(handle, hook)
  return handle
}

/**
 * The two sides of one call of a module, at which backward hooks see its gradients.
 *
 * Tensors pass through aliases, so that the gradients are those of this call alone: an input that others read too has more.
 */
class Boundary {
  readonly #module: Module
  readonly #hooks: readonly BackwardHook[]
  #inputs: Crossing | undefined
  #inputCount = 0
  /** Of the backward pass under way, between output and input. */
  #gradOutput: GradientList | undefined

  constructor(module: Module, hooks: readonly BackwardHook[]) {
    this.#module = module
    this.#hooks = hooks
  }

  enter(args: readonly unknown[]): readonly unknown[] {
    const inputs = new Crossing(args)
    this.#inputCount = inputs.count
    if (inputs.aliases.length === 0) return args
    this.#inputs = inputs
    hookGradients(inputs.aliases, (gradients) => {
      const gradOutput = this.#gradOutput
      // A gradient that came around the output is no call's.
      if (!gradOutput) return undefined
      this.#gradOutput = undefined
      return inputs.pick(this.#run(inputs.spread(gradients), gradOutput))
    })
    return inputs.values
  }

  leave(output: unknown): unknown {
    const isRecord = isPlain(output)
    const names = isRecord ? Object.keys(output) : []
    const list = isRecord ? Object.values(output) : Array.isArray(output) ? output : [output]
    const outputs = new Crossing(list)
    if (outputs.aliases.length === 0) return output
    hookGradients(outputs.aliases, (gradients) => {
      this.#gradOutput = outputs.spread(gradients)
      if (this.#inputs) return undefined
      const none: GradientList = Array.from({ length: this.#inputCount }, () => undefined)
      const returned = this.#run(none, this.#gradOutput)
      if (returned.some((gradient) => gradient !== undefined)) {
        throw new TabringError(
          'graph.misuse',
          `${this.#module.constructor.name}: the backward hook returned a gradient, but no input needs one. Return nothing, or use registerHook on the tensor you want.`,
        )
      }
      return undefined
    })
    const { values } = outputs
    if (isRecord) return Object.fromEntries(names.map((name, i) => [name, values[i]]))
    return Array.isArray(output) ? values : values[0]
  }

  #run(gradInput: GradientList, gradOutput: GradientList): GradientList {
    let current = gradInput
    for (const hook of this.#hooks) {
      const returned = hook(this.#module, current, gradOutput)
      if (returned === undefined) continue
      const list = returned instanceof Tensor ? [returned] : returned
      if (list.length !== gradInput.length) {
        throw new TabringError(
          'graph.misuse',
          `${this.#module.constructor.name}: expected ${gradInput.length} gradients from a backward hook, one per tensor argument, got ${list.length}. Return undefined for gradients that do not change.`,
        )
      }
      current = list.map((gradient, i) => gradient ?? current[i])
    }
    return current
  }
}

const deepestNesting = 4

/** Values that pass one side of a call: tensors with a gradient as aliases, those within arrays and records too; all else as it is. */
class Crossing {
  readonly values: readonly unknown[]
  readonly aliases: Tensor[] = []
  /** The alias, by number, of each place of a list of gradients. */
  readonly #places: (number | undefined)[] = []

  constructor(given: readonly unknown[]) {
    const trace = activeTrace('hooks')
    this.values = given.map((value) => {
      const count = this.count
      const passed = this.#pass(trace, value, 0)
      if (this.count === count) this.#places.push(undefined)
      return passed
    })
  }

  /** How many gradients a list of them has. */
  get count(): number {
    return this.#places.length
  }

  #pass(trace: Trace, value: unknown, depth: number): unknown {
    if (value instanceof Tensor) return this.#passTensor(trace, value)
    const items = Array.isArray(value) ? value : isPlain(value) ? Object.values(value) : []
    if (items.length === 0 || depth === deepestNesting) return value
    const before = this.aliases.length
    const passed = items.map((item) => this.#pass(trace, item, depth + 1))
    if (this.aliases.length === before) return value
    if (Array.isArray(value)) return passed
    return Object.fromEntries(Object.keys(value as object).map((name, i) => [name, passed[i]]))
  }

  #passTensor(trace: Trace, tensor: Tensor): Tensor {
    if (!requiresGradient(trace, tensor.value)) {
      if (isFloat(tensor)) this.#places.push(undefined)
      return tensor
    }
    this.#places.push(this.aliases.length)
    const alias = aliasOf(tensor)
    keepCleared(tensor, alias)
    this.aliases.push(alias)
    return alias
  }

  /** Gradients of the aliases at their places. */
  spread(gradients: GradientList): GradientList {
    return this.#places.map((place) => (place === undefined ? undefined : gradients[place]))
  }

  /** The other way round. */
  pick(gradients: GradientList): GradientList {
    return this.aliases.map((_, i) => gradients[this.#places.indexOf(i)])
  }
}

const isFloat = ({ dtype }: Tensor): boolean => dtype === 'f32' || dtype === 'f16'
