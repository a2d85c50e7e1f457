import { requireDevice } from '../graph/memory/require-device.ts'
import type { HookHandle } from '../graph/trace/gradient-hooks.ts'
import type { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import { Parameter } from '../graph/trace/parameter.ts'
import type { StoredData, StoredTensor } from '../graph/trace/stored-tensor.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { type DeviceSpec, placedDevice } from '../util/device.ts'
import { ShapeError, TabringError } from '../util/errors.ts'
import { checkChoice, checkOptions } from '../util/options.ts'
import { formatShape, type Shape, sameShape } from '../util/shape.ts'
import {
  type BackwardHook,
  type ForwardHook,
  type ForwardPreHook,
  ModuleHooks,
} from './module-hooks.ts'
import { itemsWithin, keyOf, outerName } from './module-names.ts'
import { fitModulePrefix } from './module-prefix.ts'
import { type LoadableState, stateValues } from './state-values.ts'

/** Parameters and buffers on the host, by key: what a checkpoint holds. Keys of one shared tensor hold the same array. */
export type StateDict = Record<string, { shape: Shape; data: StoredData }>

export interface LoadOptions {
  /** Whether a missing or an unknown key is an error; default true. */
  strict?: boolean
  /** `auto` puts `module.` before a key, or takes it off, where that makes it one of this module; default `exact`: keys as they are. */
  prefix?: 'exact' | 'auto'
}

/** What `loadStateDict` did not find, and what it did not know. */
export interface LoadResult {
  readonly missingKeys: string[]
  readonly unexpectedKeys: string[]
}

/**
 * A piece of a model: parameters, buffers and further modules of its own, and a `forward`.
 *
 * Keys of the state dict are property names joined by dots, in the order in which the constructor set them, as in torch.nn;
 * a name in camelCase becomes snake_case (`inProjWeight` is `in_proj_weight`), PyTorch's spelling; any other (`W_q`, `convBN`) stays as it
 * is. A module's parameters come before its buffers, and both before its modules. Modules in arrays have no keys: put them into a
 * `ModuleList` or `ModuleDict`. What `#private` fields hold nobody outside can see: it is no part of the model. Use TypeScript's `private`.
 */
export abstract class Module {
  /** Whether layers behave as in training (dropout draws, batch statistics count); fixed into a program when it is compiled. */
  training = true
  readonly #buffers = new Map<string, { buffer: ModuleBuffer; persistent: boolean }>()
  #hooks: ModuleHooks | undefined

  abstract forward(x: Tensor, ...others: unknown[]): Tensor

  /**
   * Calls `hook(module, args)` before each call of `forward`; what it returns takes the arguments' place.
   *
   * Hooks run while a function is traced, on tensors without contents, in the order of registering: once per call in the compiled
   * function, not once per step. A program keeps what they did; `remove()` and new hooks concern what is compiled from there on.
   */
  registerForwardPreHook(hook: ForwardPreHook<this>): HookHandle {
    return this.#hooked().before(hook as ForwardPreHook)
  }

  /** Calls `hook(module, args, output)` after each call of `forward`; what it returns takes the output's place. When: as above. */
  registerForwardHook<Output = Tensor>(hook: ForwardHook<this, Output>): HookHandle {
    return this.#hooked().after(hook as ForwardHook<Module, unknown>)
  }

  /**
   * Calls `hook(module, gradInput, gradOutput)` in each `backward` that passes a call of `forward`, when the gradients by its arguments
   * are complete; what it returns takes their place. Arguments without a gradient (data, numbers) have undefined;
   * packed sequences, records and arrays have one gradient for each float tensor in them.
   *
   * It runs while a function is traced, as above; the gradients are tensors of that trace. It sees hooks' outputs as the module's.
   * errors: `graph.misuse` for a wrong number of gradients, `shape.mismatch` for one of another shape.
   */
  registerFullBackwardHook(hook: BackwardHook<this>): HookHandle {
    return this.#hooked().backward(hook as BackwardHook)
  }

  /** Methods by which others call this module: hooks run for each. */
  protected get entryPoints(): readonly string[] {
    return ['forward']
  }

  #hooked(): ModuleHooks {
    this.#hooks ??= new ModuleHooks(this, this.entryPoints)
    return this.#hooks
  }

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

  /**
   * Modules in this one's properties, by their part of a key; containers override it.
   *
   * errors: `graph.misuse` for modules in arrays, sets, maps and plain objects, nested ones too, which would be left out.
   */
  children(): [name: string, module: Module][] {
    const properties = Object.entries(this)
    const own = properties.filter((entry): entry is [string, Module] => entry[1] instanceof Module)
    for (const [name, property] of properties) {
      const within = itemsWithin(property, (value) => value instanceof Module)
      if (within.length === 0) continue
      const known = new Set(own.flatMap(([, module]) => [...module.modules()]))
      if (within.every((module) => known.has(module))) continue
      const plain = Array.isArray(property) ? 'array' : property instanceof Set ? 'set' : 'object'
      throw new TabringError(
        'graph.misuse',
        `${this.constructor.name}: expected modules in properties of their own, got a plain ${plain} of modules in "${name}", whose parameters would be missing. Put them into a ${plain === 'object' ? 'ModuleDict' : 'ModuleList'}.`,
      )
    }
    return own.map(([name, module]) => [keyOf(name), module])
  }

  /** This module and all inside it, each once, this one first. */
  *modules(): Generator<Module> {
    for (const [, module] of this.namedModules()) yield module
  }

  /** This module and all inside it with their paths, this one's being `prefix`; one that two places share comes once, under its first path. */
  *namedModules(prefix = '', seen = new Set<Module>()): Generator<[path: string, module: Module]> {
    if (seen.has(this)) return
    seen.add(this)
    yield [prefix, this]
    for (const [name, module] of this.children()) {
      yield* module.namedModules(prefix ? `${prefix}.${name}` : name, seen)
    }
  }

  /** Calls `fn` with every module inside this one, then with this one, and returns this one. */
  apply(fn: (module: Module) => void): this {
    for (const module of new Set(this.children().map(([, child]) => child))) module.apply(fn)
    fn(this)
    return this
  }

  /** Freezes all parameters, or lets them learn again, in what is compiled from here on; returns this module. */
  requiresGrad_(flag = true): this {
    for (const parameter of this.parameters()) parameter.requiresGrad = flag
    return this
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
      parameter.name = outerName(parameter.name, key)
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
      buffer.name = outerName(buffer.name, key)
      return buffer
    })
  }

  /**
   * Moves all parameters and buffers themselves to a device; returns this module when they are there.
   *
   * Programs compiled for another device refuse them from then on. Move a model before its optimizer is made, as in PyTorch. What no
   * device holds yet (a new model) is moved when this returns, awaited or not; what another device holds is read back first, tensor by
   * tensor, or all at once with `nonBlocking`. errors: `gpu.unavailable` for a WebGPU device that this tab does not have.
   */
  async to(device: DeviceSpec, options: { nonBlocking?: boolean } = {}): Promise<this> {
    const { nonBlocking = false } = checkOptions('to', options, { nonBlocking: true })
    const target = placedDevice(device)
    const moves: Promise<void>[] = []
    for (const [, tensor] of this.#walk('')) {
      const move = tensor.moveToDevice(target)
      if (!move) continue
      if (nonBlocking) moves.push(move)
      else await move
    }
    await Promise.all(moves)
    await requireDevice('to', target)
    return this
  }

  /** `to` a WebGPU device: the current one unless told. */
  webgpu(index?: number): Promise<this> {
    return this.to(index ?? 'webgpu')
  }

  cpu(): Promise<this> {
    return this.to('cpu')
  }

  /** The contents of all parameters and persistent buffers as they are now; what two places share, under each of its keys. */
  async stateDict(): Promise<StateDict> {
    const state: StateDict = {}
    const contents = new Map<StoredTensor, StateDict[string]>()
    for (const [key, tensor] of this.#state()) {
      const read = contents.get(tensor) ?? { shape: tensor.shape, data: await tensor.read() }
      contents.set(tensor, read)
      state[key] = { ...read }
    }
    return state
  }

  /**
   * Takes contents over and returns the keys that did not fit. Numbers may come in any type, as in PyTorch: also as `readSafetensors`
   * gives them, F16 and BF16 included.
   *
   * A tensor that two places share needs one of its keys; where several come, the last one wins, as in PyTorch. With `prefix: 'auto'`
   * a state of the bare model loads into the wrapped one, and the other way round; unknown keys are told as they came.
   * errors: `shape.mismatch`, naming missing and unknown keys where `strict`, or a tensor of another shape; `data.malformed` for whole
   * numbers that 32 bits do not hold. Nothing is changed then.
   */
  loadStateDict(given: LoadableState, options: LoadOptions = {}): LoadResult {
    const known = { strict: true, prefix: true } as const
    const { strict = true, prefix = 'exact' } = checkOptions('loadStateDict', options, known)
    checkChoice('loadStateDict', 'prefix', prefix, ['exact', 'auto'])
    const own = this.#state()
    const keys = new Set(own.map(([key]) => key))
    const state = prefix === 'auto' ? fitModulePrefix(given, keys) : given
    const covered = new Set(own.filter(([key]) => key in state).map(([, tensor]) => tensor))
    const missingKeys = own.filter(([, tensor]) => !covered.has(tensor)).map(([key]) => key)
    const unexpectedKeys = Object.keys(state).filter((key) => !keys.has(key))
    if (strict && (missingKeys.length || unexpectedKeys.length)) {
      throw new ShapeError(
        'shape.mismatch',
        `loadStateDict: expected the keys of this model, got missing [${missingKeys.join(', ')}] and unknown [${unexpectedKeys.join(', ')}]. Load a file made for this model, or pass strict: false.`,
      )
    }
    const found = own.filter(([key]) => key in state)
    for (const [key, tensor] of found) {
      const { shape } = state[key]
      if (sameShape(shape, tensor.shape)) continue
      throw new ShapeError(
        'shape.mismatch',
        `loadStateDict: "${key}" must be ${formatShape(tensor.shape)}, got ${formatShape(shape)}. Load a file made for this model.`,
      )
    }
    const values = found.map(([key, tensor]) =>
      stateValues(key, state[key], tensor.dtype === 'i32' ? 'i32' : 'f32'),
    )
    found.forEach(([, tensor], i) => {
      tensor.assign(values[i])
    })
    return { missingKeys, unexpectedKeys }
  }

  /**
   * Makes `buffer` part of this module under `name`, its state-dict key, and returns it for a property.
   *
   * Buffers that are not `persistent` stay out of the state dict.
   */
  registerBuffer(
    name: string,
    buffer: ModuleBuffer,
    options: { persistent?: boolean } = {},
  ): ModuleBuffer {
    const { persistent = true } = checkOptions('registerBuffer', options, { persistent: true })
    this.#buffers.set(name, { buffer, persistent })
    return buffer
  }

  /** What the state dict holds, under all keys. */
  #state(): [key: string, tensor: StoredTensor][] {
    return [...this.#walk('')].flatMap(([key, tensor, isPersistent]) =>
      isPersistent ? [[key, tensor]] : [],
    )
  }

  /** errors: `graph.misuse` for two tensors or modules of this one with one key. */
  *#walk(prefix: string): Generator<[string, Parameter | ModuleBuffer, persistent: boolean]> {
    const seen = new Set<string>()
    const unique = (key: string): string => {
      if (seen.has(key)) {
        throw new TabringError(
          'graph.misuse',
          `${this.constructor.name}: expected keys of its own for each tensor and module, got "${prefix}${key}" twice. Properties in camelCase become snake_case: rename one of them.`,
        )
      }
      seen.add(key)
      return `${prefix}${key}`
    }
    for (const [name, property] of Object.entries(this)) {
      if (property instanceof Parameter) yield [unique(keyOf(name)), property, true]
    }
    for (const [name, { buffer, persistent }] of this.#buffers) {
      yield [unique(keyOf(name)), buffer, persistent]
    }
    for (const [name, module] of this.children()) {
      yield* module.#walk(`${unique(name)}.`)
    }
  }
}

/** Modules by position, which is their key: what Sequential and ModuleList share. */
export abstract class ModuleSequence<M extends Module = Module> extends Module {
  readonly #modules: M[] = []

  constructor(modules: Iterable<M>) {
    super()
    this.extend(modules)
  }

  get length(): number {
    return this.#modules.length
  }

  [Symbol.iterator](): IterableIterator<M> {
    return this.#modules.values()
  }

  /** The module at a position; negative ones count from the end. errors: `graph.misuse` outside of the list. */
  at(index: number): M {
    return this.#modules[this.#position(index, this.length - 1)]
  }

  /** Puts a module in the place of another. */
  set(index: number, module: M): void {
    this.#modules[this.#position(index, this.length - 1)] = this.#checked(module)
  }

  append(module: M): this {
    this.#modules.push(this.#checked(module))
    return this
  }

  extend(modules: Iterable<M>): this {
    for (const module of [...modules]) this.append(module)
    return this
  }

  /** Puts a module before the one at `index`. */
  insert(index: number, module: M): void {
    this.#modules.splice(this.#position(index, this.length), 0, this.#checked(module))
  }

  /** Takes a module out and returns it; the last one unless told. */
  pop(index = -1): M {
    return this.#modules.splice(this.#position(index, this.length - 1), 1)[0]
  }

  override children(): [string, M][] {
    return this.#modules.map((module, i) => [String(i), module])
  }

  #checked(module: M): M {
    if (module instanceof Module) return module
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: expected modules, got ${Array.isArray(module) ? 'an array' : String(module)}. Make each with new.`,
    )
  }

  #position(index: number, last: number): number {
    const from = index < 0 ? index + this.length : index
    if (Number.isInteger(from) && from >= 0 && from <= last) return from
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: expected a position among ${this.length} modules, got ${index}. Check the index.`,
    )
  }
}

/** Modules one after the other; their keys are their positions. What is added or taken out concerns what is compiled from there on. */
export class Sequential extends ModuleSequence {
  constructor(...modules: Module[]) {
    super(modules)
  }

  forward(x: Tensor): Tensor {
    return [...this].reduce((tensor, module) => module.forward(tensor), x)
  }
}
