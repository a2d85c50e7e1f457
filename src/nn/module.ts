import { requireDevice } from '../graph/memory/require-device.ts'
import type { HookHandle } from '../graph/trace/gradient-hooks.ts'
import { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import { Parameter } from '../graph/trace/parameter.ts'
import { nameLater, type StoredData, type StoredTensor } from '../graph/trace/stored-tensor.ts'
import { Tensor } from '../graph/trace/tensor.ts'
import { targetDevice } from '../graph/trace/tensor-arguments.ts'
import { activeTrace, isTracing } from '../graph/trace/trace.ts'
import type { Holding } from '../graph/trace/value.ts'
import { clipped } from '../util/clipped.ts'
import type { DeviceSpec } from '../util/device.ts'
import { ShapeError, TabringError } from '../util/errors.ts'
import { isSameList } from '../util/is-same-list.ts'
import { isIterable, isOf, quoted } from '../util/kind-of.ts'
import {
  checkArgument,
  checkChoice,
  checkFlag,
  checkOptions,
  requireFlag,
} from '../util/options.ts'
import { countArguments, refusePythonNames } from '../util/plain-callers.ts'
import { formatShape, type Shape } from '../util/shape.ts'
import {
  type BackwardHook,
  type ForwardHook,
  type ForwardPreHook,
  ModuleHooks,
} from './module-hooks.ts'
import { checkName, itemsWithin, keyOf, outerName } from './module-names.ts'
import { fitModulePrefix, isSaved, remedyOfKeys } from './module-prefix.ts'
import { type LoadableState, requireTensors, stateValues } from './state-values.ts'

/** Parameters and buffers on the host, by key, as a checkpoint holds them. Keys of a shared tensor refer to the same array. */
export type StateDict = Record<string, { shape: Shape; data: StoredData }>

export interface LoadOptions {
  /** True if a missing or an unknown key is an error; default true. */
  strict?: boolean
  /**
   * `auto` (the default) adds or removes what wrappers put into keys, where that gives a key of this module: any number of leading `module.`
   * (`DistributedDataParallel`, `DataParallel`), `_orig_mod.` (`torch.compile`), and a prefix of just its keys, such as Lightning's `model.`.
   * `exact`: keys as they are, as in PyTorch.
   */
  prefix?: 'exact' | 'auto'
}

/** Keys that `loadStateDict` did not find, and keys that it did not know. */
export interface LoadResult {
  readonly missingKeys: string[]
  readonly unexpectedKeys: string[]
}

/** Which saved tensor is for which of a module; `finish` is called when they have their contents. */
export interface LoadPlan<T> {
  readonly found: readonly {
    readonly key: string
    readonly tensor: StoredTensor
    readonly saved: T
  }[]
  readonly finish: () => LoadResult
}

/**
 * Base class of all models and layers: parameters, buffers, submodules and a `forward`.
 *
 * State-dict keys are property names joined by dots, in the order in which the constructor set them, as in torch.nn. A camelCase name
 * becomes PyTorch's snake_case (`inProjWeight` is `in_proj_weight`); other names (`W_q`, `convBN`) do not change. A module's parameters
 * come before its buffers, and both before its submodules. Modules and parameters in arrays, maps and objects have no keys, and are refused: put
 * modules into a `ModuleList` or `ModuleDict`, and each parameter into a property of a module.
 * Modules cannot see `#private` fields, which are therefore not part of the model; use TypeScript's `private`.
 */
export abstract class Module {
  #training = true
  readonly #buffers = new Map<string, { buffer: ModuleBuffer; persistent: boolean }>()
  #hooks: ModuleHooks | undefined
  constructor(...none: never[]) {
    checkArgument(new.target.name, 'the argument', none[0], none.length === 0, 'omitted')
    nameLater(this)
  }

  abstract forward(x: Tensor, ...others: unknown[]): Tensor

  /**
   * Returns whether layers are in training mode (active dropout, batch statistics). A compiled step keeps what it has read, and refuses to run in the
   * other mode until a step is compiled in that.
   */
  get training(): boolean {
    if (isTracing()) activeTrace('training').modes.set(this, this.#training)
    return this.#training
  }
  set training(training: boolean) {
    requireFlag(this.constructor.name, 'training', training)
    this.#training = training
  }

  /**
   * Calls `hook(module, args)` before each call of `forward`; the hook may return replacements for the arguments.
   *
   * Hooks run while a function is traced, on tensors without contents, in the order of registration: once per call in the compiled
   * function, not once per step. A compiled program keeps their effect; `remove()` and new hooks only affect later compilations.
   */
  registerForwardPreHook(hook: ForwardPreHook<this>): HookHandle {
    return this.#hooked().before(hook as ForwardPreHook)
  }

  /**
   * Calls `hook(module, args, output)` after each call of `forward`; the hook may return a replacement for the output. Runs at the same
   * time as forward pre-hooks.
   */
  registerForwardHook<Output = Tensor>(hook: ForwardHook<this, Output>): HookHandle {
    return this.#hooked().after(hook as ForwardHook<Module, unknown>)
  }

  /**
   * Calls `hook(module, gradInput, gradOutput)` in each `backward` through a call of `forward`, once the gradients of its arguments are
   * complete; the hook may return replacements for them. Arguments without a gradient (data, numbers) have undefined; packed sequences,
   * records and arrays have one gradient for each float tensor in them.
   *
   * It runs while a function is traced, like forward pre-hooks; the gradients are tensors of that trace. Outputs of other hooks count as
   * the module's outputs.
   * errors: `graph.misuse` for a wrong number of gradients, `shape.mismatch` for a gradient of the wrong shape.
   */
  registerFullBackwardHook(hook: BackwardHook<this>): HookHandle {
    return this.#hooked().backward(hook as BackwardHook)
  }

  /** Methods by which callers run this module: hooks run for each of them. */
  protected get entryPoints(): readonly string[] {
    return ['forward']
  }

  #hooked(): ModuleHooks {
    this.#hooks ??= new ModuleHooks(this, this.entryPoints)
    return this.#hooks
  }

  /** Sets training mode for this module and all its submodules; returns this module. */
  train(mode = true): this {
    checkFlag('train', 'mode', mode)
    this.nameTensors()
    this.training = mode
    for (const [, module] of this.children()) module.train(mode)
    return this
  }

  /** Same as `train(false)`: steps compiled from now on evaluate. */
  eval(): this {
    return this.train(false)
  }

  /** @internal What `trace` returns, traced with this module in evaluation mode; each of its modules is as before afterwards. */
  evaluating<T>(trace: () => T): T {
    const before = [...this.modules()].map((module) => [module, module.#training] as const)
    try {
      this.eval()
      return trace()
    } finally {
      for (const [module, training] of before) module.training = training
    }
  }

  /**
   * The direct submodules, by their part of the key; containers override it.
   *
   * errors: `graph.misuse` for modules in arrays, sets, maps and plain objects, also nested ones, which would be ignored.
   */
  children(): [name: string, module: Module][] {
    const properties = Object.entries(this)
    const own = properties.filter((entry): entry is [string, Module] => entry[1] instanceof Module)
    for (const [name, property] of properties) {
      const within = itemsWithin(property, (value) => value instanceof Module)
      if (within.length === 0) continue
      const known = new Set(own.flatMap(([, module]) => [...module.modules()]))
      if (within.every((module) => known.has(module))) continue
      const plain = containerName(property)
      throw new TabringError(
        'graph.misuse',
        `${this.constructor.name}: "${clipped(name)}" is a plain ${plain} of modules, whose parameters would be ignored. Put them into a ${plain === 'object' ? 'ModuleDict' : 'ModuleList'}.`,
      )
    }
    return own.map(([name, module]) => [keyOf(name), module])
  }

  /** errors: `graph.misuse` for a module in a property of a container that the container does not list: it would be ignored. */
  protected refuseOthers(listed: readonly Module[]): void {
    const other = Object.entries(this).find(
      ([, value]) => value instanceof Module && !listed.includes(value),
    )
    if (!other) return
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: the module in property "${clipped(other[0])}" is none of those it lists, and would be ignored. Add it by set(…).`,
    )
  }

  /** This module and all its submodules, each once, this one first. */
  *modules(): Generator<Module> {
    for (const [, module] of this.namedModules()) yield module
  }

  /** This module and all its submodules with their paths, starting at `prefix`; a shared module comes once, under its first path. */
  *namedModules(prefix = '', seen = new Set<Module>()): Generator<[path: string, module: Module]> {
    if (seen.has(this)) return
    seen.add(this)
    yield [prefix, this]
    for (const [name, module] of this.children()) {
      yield* module.namedModules(prefix ? `${prefix}.${name}` : name, seen)
    }
  }

  /** Calls `fn` with every submodule, then with this module; returns this module. */
  apply(fn: (module: Module) => void): this {
    checkArgument('apply', 'fn', fn, typeof fn === 'function', 'a function of a module')
    this.nameTensors()
    for (const module of new Set(this.children().map(([, child]) => child))) module.apply(fn)
    fn(this)
    return this
  }

  /** Freezes or unfreezes all parameters in steps compiled from now on, and returns this module. */
  requiresGrad_(flag = true): this {
    checkFlag('requiresGrad_', 'flag', flag)
    for (const parameter of this.parameters()) parameter.requiresGrad = flag
    return this
  }

  /** Every parameter with its key. A shared parameter comes once, under its first key. */
  *namedParameters(prefix = ''): Generator<[key: string, parameter: Parameter]> {
    const seen = new Set<Parameter>()
    for (const [key, tensor] of this.#walk(prefix)) {
      if (!(tensor instanceof Parameter) || seen.has(tensor)) continue
      seen.add(tensor)
      yield [key, tensor]
    }
  }

  parameters(): Parameter[] {
    const all = this.#named().map(([, tensor]) => tensor)
    return [...new Set(all.filter((tensor) => tensor instanceof Parameter))]
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
    const all = this.#named().map(([, tensor]) => tensor)
    return [
      ...new Set(all.filter((tensor): tensor is ModuleBuffer => !(tensor instanceof Parameter))),
    ]
  }

  /**
   * Moves all parameters and buffers to a device, in place; resolves to this module when they have moved.
   *
   * Programs compiled for another device refuse the moved tensors. Move a model before creating its optimizer, as in PyTorch. A new model,
   * whose tensors are not on any device yet, has moved when this returns, awaited or not. Tensors on another device are read back first:
   * one by one, or all at once with `nonBlocking`. errors: `gpu.unavailable` for a WebGPU device that this tab does not have.
   */
  async to(device: DeviceSpec, options: { nonBlocking?: boolean } = {}): Promise<this> {
    const { nonBlocking = false } = checkOptions('to', options, { nonBlocking: 'flag' })
    const target = targetDevice('to', device)
    const moves: Promise<unknown>[] = []
    for (const [, tensor] of this.#named()) {
      const move = tensor.moveToDevice(target)
      if (!move) continue
      if (nonBlocking) moves.push(move)
      else await move
    }
    await Promise.all(moves)
    await requireDevice('to', target)
    return this
  }

  /** Moves to a WebGPU device, the current one by default; see `to`. */
  webgpu(index?: number): Promise<this> {
    return this.to(index ?? 'webgpu')
  }

  /** Moves to the host; on a device nothing stays of the module, its gradients and its optimizer's state. See `to`. */
  cpu(): Promise<this> {
    return this.to('cpu')
  }

  /**
   * Frees all parameters and buffers for good, and with them their gradients and their optimizer's state, when the runs under way have ended.
   *
   * Programs that read them, their optimizer and modules that share them are refused from now on with `graph.misuse`. A program's own memory
   * is freed by its `destroy`. What is dropped without either is free when JavaScript's garbage collector has found it.
   */
  destroy(): void {
    for (const [, tensor] of this.#named()) tensor.destroy()
  }

  /**
   * Returns the current contents of all parameters and persistent buffers; shared tensors appear under each of their keys. Where a step or
   * `fullyShard` has divided the module among ranks, all of them call it between the same steps, and each gets the whole.
   */
  async stateDict(): Promise<StateDict> {
    const state: StateDict = {}
    const contents = new Map<StoredTensor, StateDict[string]>()
    for (const [key, tensor] of this.#state()) {
      const read = contents.get(tensor) ?? {
        shape: tensor.stateShape,
        data: await tensor.stateOf(tensor.isReleased ? undefined : await tensor.read()),
      }
      contents.set(tensor, read)
      state[key] = { ...read }
    }
    return state
  }

  /**
   * Loads contents and returns the keys that did not match. Numbers may have any type, as in PyTorch, including F16 and BF16 from
   * `readSafetensors`.
   *
   * A shared tensor needs only one of its keys; if several are present, the last one wins, as in PyTorch. The state of a wrapped model loads
   * into a bare one and vice versa; unknown keys are reported unchanged. Files of before PyTorch 0.4.1 load as there: a layer's missing
   * `num_batches_tracked` becomes 0, and a number may have shape [1].
   * errors: `shape.mismatch`, naming missing and unknown keys if `strict`, or a tensor of the wrong shape; `data.malformed` for another
   * number of elements than the shape has, and for integers that do not fit into 32 bits. Then nothing changes.
   */
  loadStateDict(given: LoadableState, options: LoadOptions = {}): LoadResult {
    return this.prepareLoad(given, options)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(given: LoadableState, options: LoadOptions = {}): () => LoadResult {
    const { found, finish } = this.planLoad(given, options, requireTensors)
    const values = found.map(({ key, tensor, saved }) =>
      stateValues(key, saved, tensor.dtype === 'i32' ? 'i32' : 'f32'),
    )
    for (const [i, { tensor }] of found.entries()) tensor.mustTake?.(values[i])
    return () => {
      found.forEach(({ tensor }, i) => {
        tensor.assignWhole(values[i])
      })
      return finish()
    }
  }

  /**
   * @internal Checks keys and shapes as `loadStateDict` does, and `check` what else the tensors of some keys must be. Returns which of
   * `given` is for which tensor, in the order of the module; `finish` is for when all of these are assigned.
   */
  planLoad<T extends { readonly shape: Shape }>(
    given: Readonly<Record<string, T>>,
    options: LoadOptions = {},
    check: (keys: Iterable<string>, state: Readonly<Record<string, T>>) => void = () => undefined,
  ): LoadPlan<T> {
    const known = { strict: true, prefix: true } as const
    const { strict = true, prefix = 'auto' } = checkOptions('loadStateDict', options, known)
    checkFlag('loadStateDict', 'strict', strict)
    checkChoice('loadStateDict', 'prefix', prefix, ['exact', 'auto'])
    const own = this.#state()
    const keys = new Set(own.map(([key]) => key))
    check([], given)
    const state = prefix === 'auto' ? fitModulePrefix(given, keys) : given
    check(keys, state)
    const isThere = ([key]: readonly [string, unknown]) => Object.hasOwn(state, key)
    const covered = new Set(own.filter(isThere).map(([, tensor]) => tensor))
    const missing = own.filter(([, tensor]) => !covered.has(tensor))
    const missingKeys = missing.filter(([, { absent }]) => !absent).map(([key]) => key)
    const unexpectedKeys = Object.keys(state).filter((key) => !keys.has(key))
    if (strict && (missingKeys.length || unexpectedKeys.length)) {
      const remedy = covered.size
        ? 'Load a file saved for this model, or pass strict: false'
        : remedyOfKeys(given, new Map(own))
      throw new ShapeError(
        'shape.mismatch',
        `loadStateDict: the keys do not match this model, missing [${clipped(missingKeys.join(', '))}] and unknown [${clipped(unexpectedKeys.join(', '))}]. ${remedy}.`,
      )
    }
    const found = own.filter(isThere).map(([key, tensor]) => ({ key, tensor, saved: state[key] }))
    for (const { key, tensor, saved } of found) {
      if (isSaved(saved.shape, tensor.stateShape)) continue
      throw new ShapeError(
        'shape.mismatch',
        `loadStateDict: "${clipped(key)}" must be ${formatShape(tensor.stateShape)}, got ${formatShape(saved.shape)}. Load a file saved for this model.`,
      )
    }
    const layers = new Set(found.map(({ key }) => layerOf(key)))
    const finish = () => {
      for (const [key, tensor] of missing)
        if (tensor.absent && layers.has(layerOf(key))) tensor.assign(tensor.absent)
      return { missingKeys, unexpectedKeys }
    }
    return { found, finish }
  }

  /**
   * Registers `buffer` under `name`, its state-dict key, and returns it so that it can be stored in a property.
   *
   * Buffers that are not `persistent` are not in the state dict. errors: `graph.misuse` for a name that is empty or has a dot.
   */
  registerBuffer(
    name: string,
    buffer: ModuleBuffer,
    options: { persistent?: boolean } = {},
  ): ModuleBuffer {
    const { persistent = true } = checkOptions('registerBuffer', options, { persistent: 'flag' })
    checkName('registerBuffer', name)
    const isBuffer = buffer instanceof ModuleBuffer
    checkArgument('registerBuffer', 'buffer', buffer, isBuffer, 'a ModuleBuffer')
    this.#buffers.set(name, { buffer, persistent })
    return buffer
  }

  /** Says whether this module still holds a child as it does now; containers override it. */
  protected keeps(child: Module): () => boolean {
    const found = Object.entries(this).find(([, property]) => property === child)
    return () => !found || Reflect.get(this, found[0]) === child
  }

  /** @internal For a step that reads some of its tensors; see `Holder`. */
  watchParts(): () => boolean {
    const own = () => Object.values(this).filter((one) => one instanceof Parameter)
    const parameters = own()
    const count = this.childCount
    // Modules with tensors are watched where the step reads these.
    const empty = this.children().filter(([, module]) => module.#walk('').next().done)
    const kept = empty.flatMap(([, module]) => [this.keeps(module), module.watchParts()])
    return () =>
      // A parameter that ranks have divided since throws when its contents are read.
      parameters.some(({ dividedBy }) => dividedBy) ||
      (isSameList(own(), parameters) &&
        this.childCount <= count &&
        kept.every((isSame) => isSame()))
  }

  /** How many modules it has, without a look into other properties. */
  protected get childCount(): number {
    return Object.values(this).filter((one) => one instanceof Module).length
  }

  /** Makes the step that is traced refuse to run once this module has a parameter, where it has none. */
  protected noteParts(): void {
    const isEmpty = !Object.values(this).some((one) => one instanceof Tensor)
    if (isEmpty && isTracing()) activeTrace('forward').watched.set(this, this.watchParts())
  }

  /** Returns whether the state dict holds a submodule's tensor, by its key in this module. */
  protected saves(_key: string, _tensor: StoredTensor): boolean {
    return true
  }

  /** What the state dict holds, under all keys. */
  #state(): [key: string, tensor: StoredTensor][] {
    return this.#named().flatMap(([key, tensor, isPersistent]) =>
      isPersistent ? [[key, tensor]] : [],
    )
  }

  /** @internal Names all parameters and buffers by their keys, for errors. errors: `graph.misuse` for a module within itself. */
  nameTensors(): void {
    this.#named(false)
  }

  /** Everything that `#walk` finds, named by its keys for errors. */
  #named(isListed = true): Walked[] {
    const all = [...this.#walk('')]
    for (const [key, tensor, , heldAt] of all) {
      tensor.name = outerName(tensor.name, key)
      if (tensor.name === key) tensor.heldAt = heldAt
      tensor.isListed ||= isListed
    }
    return all
  }

  /** errors: `graph.misuse` for a parameter that is in a container alone: it would be ignored. */
  #refuseLost(properties: readonly [name: string, property: unknown][]): void {
    for (const [name, property] of properties) {
      const within = itemsWithin(property, (value) => value instanceof Parameter)
      if (within.length === 0) continue
      const known = new Set<unknown>(properties.map(([, value]) => value))
      for (const [, module] of this.children())
        for (const [, parameter] of module.namedParameters()) known.add(parameter)
      const lost = within.find((parameter) => !known.has(parameter))
      if (!lost) continue
      throw new TabringError(
        'graph.misuse',
        `${this.constructor.name}: "${clipped(name)}" is a plain ${containerName(property)} with a parameter ${formatShape(lost.shape)}, which would be ignored. Give it a property of its own; where the number varies, make a small module that holds it, and a ModuleList of these. To keep it out of the module, use a #private field.`,
      )
    }
  }

  /** errors: `graph.misuse` for two tensors or modules of this one with one key, for a key with a dot, and for a module within itself. */
  *#walk(prefix: string, within?: Holding, above: readonly Module[] = []): Generator<Walked> {
    if (above.includes(this)) {
      throw new TabringError(
        'graph.misuse',
        `${above[0].constructor.name}: "${clipped(prefix.slice(0, -1))}" is one of the modules that hold it. Keep it in a #private field, which is no part of a module.`,
      )
    }
    const seen = new Set<string>()
    const unique = (key: string): string => {
      if (seen.has(key)) {
        throw new TabringError(
          'graph.misuse',
          `${this.constructor.name}: two tensors or modules have the key "${prefix}${key}". Properties in camelCase become snake_case: rename one of them.`,
        )
      }
      checkName(this.constructor.name, key)
      seen.add(key)
      return `${prefix}${key}`
    }
    const properties = Object.entries(this)
    this.#refuseLost(properties)
    for (const [name, property] of properties) {
      if (!(property instanceof Parameter)) continue
      const isKept = () => Reflect.get(this, name) === property
      yield [unique(keyOf(name)), property, true, { within, isKept, holder: this }]
    }
    for (const [name, { buffer, persistent }] of this.#buffers) {
      const read: unknown = Reflect.get(this, name)
      const isKept = () =>
        this.#buffers.get(name)?.buffer === buffer && Reflect.get(this, name) === read
      yield [unique(keyOf(name)), buffer, persistent, { within, isKept, holder: this }]
    }
    for (const [name, module] of this.children()) {
      const holding = { within, isKept: this.keeps(module), holder: this }
      for (const [key, tensor, isPersistent, heldAt] of module.#walk(`${unique(name)}.`, holding, [
        ...above,
        this,
      ]))
        yield [key, tensor, isPersistent && this.saves(key.slice(prefix.length), tensor), heldAt]
    }
  }
}

// TypeScript refuses a subclass without one; JavaScript does not.
Object.defineProperty(Module.prototype, 'forward', {
  configurable: true,
  writable: true,
  value(this: Module): never {
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: has no forward. Write forward(x) { return … } in the class.`,
    )
  },
})

countArguments(Module, {
  // Classes without their own: the error says so, whatever they are given.
  forward: Number.POSITIVE_INFINITY,
  train: 1,
  namedModules: 2,
  requiresGrad_: 1,
  namedParameters: 1,
  namedBuffers: 1,
  to: 2,
  loadStateDict: 2,
  prepareLoad: 2,
  planLoad: 3,
  registerBuffer: 3,
})
const device = "await model.to('webgpu')"
const precision = 'autocast(() => model.forward(x)) in the step: parameters are f32'
refusePythonNames(
  Module,
  {
    zero_grad: 'optimizer.zeroGrad()',
    zeroGrad: 'optimizer.zeroGrad()',
    named_children: 'model.children()',
    add_module: 'this.name = module',
    register_module: 'this.name = module',
    register_parameter: 'this.name = new Parameter(shape, data)',
    cuda: device,
    half: precision,
    bfloat16: precision,
    float: 'nothing: parameters are f32',
    double: 'nothing: there are no doubles',
    get_parameter: 'model.layer.weight, or new Map(model.namedParameters()).get(name)',
    get_submodule: 'model.layer, or new Map(model.namedModules()).get(name)',
  },
  true,
)

type Walked = [
  key: string,
  tensor: Parameter | ModuleBuffer,
  isPersistent: boolean,
  heldAt: Holding,
]

const containerName = (value: unknown): string =>
  Array.isArray(value) ? 'array' : isOf(value, Set) ? 'set' : 'object'

const layerOf = (key: string): string => key.slice(0, key.lastIndexOf('.') + 1)

/** Modules by position, which is their key: the common base of Sequential and ModuleList. */
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

  /** Returns the module at a position; negative ones count from the end. errors: `graph.misuse` out of range. */
  at(index: number): M {
    return this.#modules[this.#position(index, this.length - 1)]
  }

  /** Replaces the module at a position. */
  set(index: number, module: M): void {
    this.#modules[this.#position(index, this.length - 1)] = this.#checked(module)
  }

  append(module: M): this {
    this.#modules.push(this.#checked(module))
    return this
  }

  extend(modules: Iterable<M>): this {
    const isList = isIterable(modules)
    checkArgument(this.constructor.name, 'modules', modules, isList, 'a list of modules')
    for (const module of [...modules]) this.append(module)
    return this
  }

  /** Inserts a module before the one at `index`. */
  insert(index: number, module: M): void {
    this.#modules.splice(this.#position(index, this.length), 0, this.#checked(module))
  }

  /** Removes a module and returns it; by default the last one. */
  pop(index = -1): M {
    return this.#modules.splice(this.#position(index, this.length - 1), 1)[0]
  }

  override children(): [string, M][] {
    this.refuseOthers(this.#modules)
    return this.#modules.map((module, i) => [String(i), module])
  }

  protected override get childCount(): number {
    return this.length
  }

  protected override keeps(child: M): () => boolean {
    const at = this.#modules.indexOf(child)
    return () => this.#modules[at] === child
  }

  #checked(module: M): M {
    if (module instanceof Module) return module
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: expected modules, got ${Array.isArray(module) ? 'an array' : quoted(module)}. Create each with new.`,
    )
  }

  #position(index: number, last: number): number {
    const from = Number.isInteger(index) && index < 0 ? index + this.length : index
    if (Number.isInteger(from) && from >= 0 && from <= last) return from
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: index ${quoted(index)} is out of range for ${this.length} modules. Check the index.`,
    )
  }
}

countArguments(ModuleSequence, { pop: 1 })

/** errors: a TypeError, naming `where`, for what is no module. */
export const checkModule = (where: string, module: unknown, name = 'module'): void =>
  checkArgument(where, name, module, module instanceof Module, 'a Module')

/** Modules applied one after the other; their keys are their positions. Programs compiled before one is added, removed or replaced refuse to run. */
export class Sequential extends ModuleSequence {
  constructor(...modules: Module[]) {
    super(modules)
  }

  forward(x: Tensor): Tensor {
    const layers = this.children().map(([, module]) => module)
    if (isTracing()) activeTrace('forward').watched.set(this, () => isSameList([...this], layers))
    return layers.reduce((tensor, module) => module.forward(tensor), x)
  }
}

countArguments(Sequential)
