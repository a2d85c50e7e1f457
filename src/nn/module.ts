import type { ModuleBuffer } from '../graph/module-buffer.ts'
import { Parameter } from '../graph/parameter.ts'
import type { StoredData, StoredTensor } from '../graph/stored-tensor.ts'
import type { Tensor } from '../graph/tensor.ts'
import { type DeviceSpec, placedDevice } from '../util/device.ts'
import { ShapeError } from '../util/errors.ts'
import { formatShape, type Shape, sameShape } from '../util/shape.ts'

/** Parameters and buffers on the host, by key: what a checkpoint holds. */
export type StateDict = Record<string, { shape: Shape; data: StoredData }>

/**
 * A piece of a model: parameters, buffers and further modules of its own, and a `forward`.
 *
 * Keys of the state dict are property names joined by dots, in the order in which the constructor set them, as in torch.nn;
 * a name in camelCase becomes snake_case (`inProjWeight` is `in_proj_weight`), PyTorch's spelling. A module's parameters come before
 * its buffers, and both before its modules.
 */
export abstract class Module {
  /** Whether layers behave as in training (dropout draws, batch statistics count); fixed into a program when it is compiled. */
  training = true
  readonly #buffers = new Map<string, { buffer: ModuleBuffer; persistent: boolean }>()

  abstract forward(x: Tensor, ...others: unknown[]): Tensor

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
    for (const [key, tensor] of this.#walk(prefix)) {
      if (!(tensor instanceof Parameter) || seen.has(tensor)) continue
      seen.add(tensor)
      yield [key, tensor]
    }
  }

  parameters(): Parameter[] {
    return [...this.namedParameters()].map(([key, parameter]) => {
      parameter.name ||= key
      return parameter
    })
  }

  /** Every buffer with its key, shared ones once. */
  *namedBuffers(prefix = ''): Generator<[key: string, buffer: ModuleBuffer]> {
    const seen = new Set<StoredTensor>()
    for (const [key, tensor] of this.#walk(prefix)) {
      if (tensor instanceof Parameter || seen.has(tensor)) continue
      seen.add(tensor)
      yield [key, tensor]
    }
  }

  buffers(): ModuleBuffer[] {
    return [...this.namedBuffers()].map(([key, buffer]) => {
      buffer.name ||= key
      return buffer
    })
  }

  /**
   * Moves all parameters and buffers themselves to a device; returns this module when they are there.
   *
   * Programs compiled for another device refuse them from then on. Move a model before its optimizer is made, as in PyTorch. What no
   * device holds yet (a new model) is moved when this returns, awaited or not; what another device holds is read back first, tensor by
   * tensor, or all at once with `nonBlocking`.
   */
  async to(
    device: DeviceSpec,
    { nonBlocking = false }: { nonBlocking?: boolean } = {},
  ): Promise<this> {
    const target = placedDevice(device)
    const moves: Promise<void>[] = []
    for (const [, tensor] of this.#walk('')) {
      const move = tensor.moveToDevice(target)
      if (!move) continue
      if (nonBlocking) moves.push(move)
      else await move
    }
    await Promise.all(moves)
    return this
  }

  /** `to` a WebGPU device: the current one unless told. */
  webgpu(index?: number): Promise<this> {
    return this.to(index ?? 'webgpu')
  }

  cpu(): Promise<this> {
    return this.to('cpu')
  }

  /** The contents of all parameters and persistent buffers as they are now. */
  async stateDict(): Promise<StateDict> {
    const state: StateDict = {}
    for (const [key, tensor] of this.#namedState()) {
      state[key] = { shape: tensor.shape, data: await tensor.read() }
    }
    return state
  }

  /**
   * Takes contents over; integers may come as either array. A tensor that two places share may come under several of its keys; its
   * first one wins.
   *
   * errors: `shape.mismatch`, naming missing and unknown keys, or a tensor of another shape.
   */
  loadStateDict(state: StateDict): void {
    const own = this.#namedState()
    const aliases = new Set([...this.#walk('')].map(([key]) => key))
    const missing = [...own.keys()].filter((key) => !(key in state))
    const unknown = Object.keys(state).filter((key) => !aliases.has(key))
    if (missing.length || unknown.length) {
      throw new ShapeError(
        'shape.mismatch',
        `loadStateDict: expected the keys of this model, got missing [${missing.join(', ')}] and unknown [${unknown.join(', ')}]. Load a file made for this model.`,
      )
    }
    for (const [key, tensor] of own) {
      const { shape, data } = state[key]
      if (!sameShape(shape, tensor.shape)) {
        throw new ShapeError(
          'shape.mismatch',
          `loadStateDict: "${key}" must be ${formatShape(tensor.shape)}, got ${formatShape(shape)}. Load a file made for this model.`,
        )
      }
      tensor.assign(tensor.dtype === 'i32' ? Int32Array.from(data) : Float32Array.from(data))
    }
  }

  /**
   * Makes `buffer` part of this module under `name`, its state-dict key, and returns it for a property.
   *
   * Buffers that are not `persistent` stay out of the state dict.
   */
  protected registerBuffer(
    name: string,
    buffer: ModuleBuffer,
    { persistent = true }: { persistent?: boolean } = {},
  ): ModuleBuffer {
    this.#buffers.set(name, { buffer, persistent })
    return buffer
  }

  #namedState(): Map<string, StoredTensor> {
    const seen = new Set<StoredTensor>()
    const state = new Map<string, StoredTensor>()
    for (const [key, tensor, persistent] of this.#walk('')) {
      if (!persistent || seen.has(tensor)) continue
      seen.add(tensor)
      state.set(key, tensor)
    }
    return state
  }

  *#walk(prefix: string): Generator<[string, Parameter | ModuleBuffer, persistent: boolean]> {
    for (const [name, property] of Object.entries(this)) {
      if (property instanceof Parameter) yield [`${prefix}${keyOf(name)}`, property, true]
    }
    for (const [name, { buffer, persistent }] of this.#buffers) {
      yield [`${prefix}${keyOf(name)}`, buffer, persistent]
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
