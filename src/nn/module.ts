import { Parameter } from '../graph/parameter.ts'
import type { Tensor } from '../graph/tensor.ts'
import { ShapeError } from '../util/errors.ts'
import { formatShape, type Shape, sameShape } from '../util/shape.ts'

/** Parameters on the host, by key: what a checkpoint holds. */
export type StateDict = Record<string, { shape: Shape; data: Float32Array<ArrayBuffer> }>

/**
 * A piece of a model: parameters and further modules in its own properties, and a `forward`.
 *
 * Keys of the state dict are property names joined by dots, in the order in which the constructor set them, as in torch.nn;
 * a name in camelCase becomes snake_case (`inProjWeight` is `in_proj_weight`), PyTorch's spelling.
 */
export abstract class Module {
  /** Whether layers behave as in training (dropout draws, batch statistics count); fixed into a program when it is compiled. */
  training = true

  abstract forward(x: Tensor): Tensor

  /** Sets the mode of this module and of all inside it; returns this module. */
  train(mode = true): this {
    this.training = mode
    for (const [, module] of this.children()) module.train(mode)
    return this
  }

  /** `train(false)`: what is compiled from here on evaluates. */
  eval(): this {
    return this.train(false)
  }

  /** Modules in this one's properties, by name; containers override it. */
  children(): [name: string, module: Module][] {
    return Object.entries(this).filter(
      (entry): entry is [string, Module] => entry[1] instanceof Module,
    )
  }

  /** Every parameter with its key. A parameter that two places share comes once, under its first key. */
  *namedParameters(prefix = ''): Generator<[key: string, parameter: Parameter]> {
    const seen = new Set<Parameter>()
    for (const [key, parameter] of this.#walk(prefix)) {
      if (seen.has(parameter)) continue
      seen.add(parameter)
      yield [key, parameter]
    }
  }

  parameters(): Parameter[] {
    return [...this.namedParameters()].map(([key, parameter]) => {
      parameter.name ||= key
      return parameter
    })
  }

  /** The contents of all parameters as they are now. */
  async stateDict(): Promise<StateDict> {
    const state: StateDict = {}
    for (const [key, parameter] of this.namedParameters()) {
      state[key] = { shape: parameter.shape, data: await parameter.read() }
    }
    return state
  }

  /**
   * Takes contents over. A parameter that two places share may come under several of its keys; its first one wins.
   *
   * errors: `shape.mismatch`, naming missing and unknown keys, or a parameter of another shape.
   */
  loadStateDict(state: StateDict): void {
    const own = new Map(this.namedParameters())
    const aliases = new Set([...this.#walk('')].map(([key]) => key))
    const missing = [...own.keys()].filter((key) => !(key in state))
    const unknown = Object.keys(state).filter((key) => !aliases.has(key))
    if (missing.length || unknown.length) {
      throw new ShapeError(
        'shape.mismatch',
        `loadStateDict: expected the keys of this model, got missing [${missing.join(', ')}] and unknown [${unknown.join(', ')}]. Load a file made for this model.`,
      )
    }
    for (const [key, parameter] of own) {
      const { shape, data } = state[key]
      if (!sameShape(shape, parameter.shape)) {
        throw new ShapeError(
          'shape.mismatch',
          `loadStateDict: "${key}" must be ${formatShape(parameter.shape)}, got ${formatShape(shape)}. Load a file made for this model.`,
        )
      }
      parameter.assign(data)
    }
  }

  *#walk(prefix: string): Generator<[string, Parameter]> {
    for (const [name, property] of Object.entries(this)) {
      if (property instanceof Parameter) yield [`${prefix}${keyOf(name)}`, property]
    }
    for (const [name, module] of this.children()) {
      for (const entry of module.#walk(`${prefix}${keyOf(name)}.`)) yield entry
    }
  }
}

/** PyTorch's spelling of a property: `outProj` is `out_proj`. */
const keyOf = (name: string): string =>
  name.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`)

/** Modules one after the other; their keys are their positions. */
export class Sequential extends Module {
  readonly #modules: readonly Module[]

  constructor(...modules: Module[]) {
    super()
    this.#modules = modules
  }

  override children(): [string, Module][] {
    return this.#modules.map((module, i) => [String(i), module])
  }

  forward(x: Tensor): Tensor {
    return this.#modules.reduce((tensor, module) => module.forward(tensor), x)
  }
}
