import { Parameter } from '../../graph/trace/parameter.ts'
import type { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { isRecord, isText, quoted } from '../../util/kind-of.ts'
import { checkArgument } from '../../util/options.ts'
import { countArguments } from '../../util/plain-callers.ts'
import { digestOfAll } from '../contents-digest.ts'
import { checkModule, Module, type StateDict } from '../module.ts'
import { AdaptedLayer, AdapterSwitch, isAdapted } from './adapted-layer.ts'
import { BaseDigest } from './base-digest.ts'
import { type LoraConfig, type LoraSettings, settingsOf } from './config.ts'
import { isNamed, isOfAdapter, type LinearLayer, layersOf, linearLayers } from './targets.ts'

/** The name of a model's first adapter, as in PEFT. */
export const defaultAdapter = 'default'

const inBase = 'base_model.'

/**
 * A model whose own parameters are frozen, with low-rank adapters for some of its linear layers, as peft.PeftModel with LoRA.
 *
 * The layers stay where they are in the base, so that its methods work: `model.baseModel.loss(…)`. State dicts and checkpoints hold the adapters,
 * what else is trained, running statistics, and the SHA-256 of the base (`base_sha256`) in place of the base; loading compares that.
 * source: Hu et al., arXiv 2106.09685.
 */
export class PeftModel<M extends Module = Module> extends Module {
  readonly baseModel: M
  readonly #settings = new Map<string, Readonly<LoraSettings>>()
  readonly #layers = new Map<string, AdaptedLayer>()
  readonly #switch = new AdapterSwitch()
  /** Keys of the base's parameters that an adapter trains beside its own, by its name. */
  readonly #alsoTrained = new Map<string, ReadonlySet<string>>()
  readonly #digest: BaseDigest

  /** Use `getPeftModel`. */
  constructor(base: M) {
    super()
    this.baseModel = base
    this.training = base.training
    base.requiresGrad_(false)
    const frozen = () => this.#baseParameters().filter(([key]) => !this.#isTrained(key))
    this.#digest = new BaseDigest(() => digestOfAll(frozen()))
    this.registerBuffer('base_sha256', this.#digest)
  }

  /** Name of the adapter that calls add; undefined without one. */
  get activeAdapter(): string | undefined {
    return this.#switch.active
  }

  /** Settings of the adapters by their names. */
  get peftConfig(): ReadonlyMap<string, Readonly<LoraSettings>> {
    return this.#settings
  }

  forward(x: Tensor, ...others: unknown[]): Tensor {
    return this.baseModel.forward(x, ...others)
  }

  /**
   * Adds an adapter; `setAdapter` makes it the active one.
   *
   * errors: `graph.misuse` for a name that is taken, for layers that there are not, and for trained biases of several adapters.
   */
  addAdapter(adapterName: string, config: LoraConfig): void {
    const where = 'addAdapter'
    const settings = settingsOf(where, config)
    this.addTo(where, adapterName, settings, layersOf(where, this.baseModel, config.targetModules))
  }

  /** @internal Adds an adapter to given layers. */
  addTo(
    where: string,
    name: string,
    settings: Readonly<LoraSettings>,
    layers: ReadonlyMap<string, LinearLayer>,
  ): void {
    checkAdapterName(where, name)
    const refuse = (problem: string) => new TabringError('graph.misuse', `${where}: ${problem}`)
    if (this.#settings.has(name))
      throw refuse(`the model has an adapter ${quoted(name)} already. Choose another name.`)
    const hasBias = [...this.#settings.values(), settings].some(({ bias }) => bias !== 'none')
    if (this.#settings.size > 0 && hasBias)
      throw refuse(`biases are trained for one adapter alone, got a second. Use bias: 'none'.`)
    const trained = this.#namedIn(where, settings, layers)
    for (const [path, layer] of layers) {
      const adapted = this.#layers.get(path) ?? new AdaptedLayer(layer, this.#switch)
      this.#layers.set(path, adapted)
      adapted.add(name, settings)
    }
    this.#alsoTrained.set(name, new Set(trained))
    this.#settings.set(name, settings)
    this.#freeze()
  }

  /** Keys of the base's parameters that an adapter trains beside its own. errors: `graph.misuse` for modules that there are not. */
  #namedIn(
    where: string,
    { bias, modulesToSave }: LoraSettings,
    layers: ReadonlyMap<string, LinearLayer>,
  ): string[] {
    const paths = [...this.baseModel.namedModules()].map(([path]) => path)
    const lost = modulesToSave.find((name) => !paths.some((path) => isNamed(path, [name])))
    if (lost !== undefined)
      throw new TabringError(
        'graph.misuse',
        `${where}: modulesToSave: no module has the name ${quoted(lost)}. Name modules of the model, such as ${clipped(paths.filter(Boolean).join(', '), 400)}.`,
      )
    const saved = paths.filter((path) => isNamed(path, modulesToSave))
    const isTrained = (key: string) =>
      saved.some((path) => key.startsWith(`${path}.`)) ||
      (bias === 'all' && key.includes('bias')) ||
      (bias === 'lora_only' && key.endsWith('.bias') && layers.has(key.slice(0, -'.bias'.length)))
    return this.#baseParameters().flatMap(([key]) => (isTrained(key) ? [key] : []))
  }

  #baseParameters(): [key: string, parameter: Parameter][] {
    return [...this.baseModel.namedParameters()].filter(([key]) => !isOfAdapter(key))
  }

  /** Returns whether any adapter trains this key of the base. */
  #isTrained(key: string): boolean {
    return [...this.#alsoTrained.values()].some((keys) => keys.has(key))
  }

  /** Has the active adapter and nothing else trained. */
  #freeze(): void {
    const active = this.activeAdapter ?? ''
    const isFrozen = this.#settings.get(active)?.inferenceMode ?? true
    const also = this.#alsoTrained.get(active)
    for (const [key, parameter] of this.#baseParameters())
      parameter.requiresGrad = !isFrozen && also?.has(key) === true
    for (const name of this.#settings.keys())
      for (const layer of this.adaptedLayers(name).values())
        for (const factor of Object.values(layer.factors(name)))
          factor.requiresGrad = name === active && !isFrozen
  }

  /**
   * Makes an adapter the active one, which is trained unless it was loaded for inference. Steps that were compiled with another refuse to run.
   *
   * errors: `graph.misuse` for an adapter that there is not.
   */
  setAdapter(adapterName: string): void {
    this.#mustHave('setAdapter', adapterName)
    this.#switch.active = adapterName
    this.#freeze()
  }

  /** Removes an adapter. If it was the active one, the first of the others is. errors: `graph.misuse` for an adapter that there is not. */
  deleteAdapter(adapterName: string): void {
    this.#mustHave('deleteAdapter', adapterName)
    this.#settings.delete(adapterName)
    this.#alsoTrained.delete(adapterName)
    for (const layer of this.#layers.values()) layer.delete(adapterName)
    if (this.activeAdapter === adapterName) this.#switch.active = this.#settings.keys().next().value
    this.#freeze()
  }

  #mustHave(where: string, name: string): Readonly<LoraSettings> {
    const found = this.#settings.get(name)
    if (found) return found
    throw new TabringError(
      'graph.misuse',
      `${where}: expected one of the adapters ${clipped([...this.#settings.keys()].join(', ')) || '(none)'}, got ${quoted(name)}. Add it by addAdapter first.`,
    )
  }

  /**
   * Returns `fn()`, in which the model is the base alone: for steps to compile, as `compile(({ x }) => ({ y: model.disableAdapter(() =>
   * model.forward(x)) }), …)`. Biases and modules that were trained too stay as they are. `generate` has an option instead.
   *
   * errors: `graph.misuse` for an `fn` that continues later, such as an async one: the adapter would be there again.
   */
  disableAdapter<R>(fn: () => R): R {
    checkArgument('disableAdapter', 'fn', fn, typeof fn === 'function', 'a function')
    const before = this.#switch.isOff
    this.#switch.isOff = true
    try {
      const result = fn()
      const goesOn = isRecord(result) && ('then' in result || Symbol.asyncIterator in result)
      if (!goesOn) return result
      throw new TabringError(
        'graph.misuse',
        `disableAdapter: fn must end before it returns, got ${quoted(result)}. Call disableAdapter inside the function that is compiled, or generate with disableAdapter: true.`,
      )
    } finally {
      this.#switch.isOff = before
    }
  }

  /** SHA-256 of the frozen parameters of the base, in hexadecimal. Where ranks hold parts of them, all call it. cost: reads them at first. */
  baseSha256(): Promise<string> {
    return this.#digest.compute()
  }

  protected override saves(key: string, tensor: StoredTensor): boolean {
    if (!(tensor instanceof Parameter) || isOfAdapter(key)) return true
    return this.#isTrained(key.slice(inBase.length))
  }

  /** @internal The layers of an adapter, by their paths in the base. */
  adaptedLayers(name: string): Map<string, AdaptedLayer> {
    this.#mustHave('the adapter', name)
    return new Map([...this.#layers].filter(([, layer]) => layer.has(name)))
  }

  /** @internal What an adapter trains beside its own, by keys of the base. */
  alsoTrained(name: string): [key: string, parameter: Parameter][] {
    return this.#baseParameters().filter(([key]) => this.#alsoTrained.get(name)?.has(key))
  }

  /**
   * Contents of the base with its own keys, with the active adapter added to the weights of its layers; the model does not change. On several
   * ranks all call it.
   */
  async mergedState(): Promise<StateDict> {
    const name = this.activeAdapter
    const state = await this.baseModel.stateDict()
    const merged = Object.entries(state).filter(([key]) => !isOfAdapter(key))
    const result: StateDict = Object.fromEntries(merged)
    if (name === undefined) return result
    for (const [path, layer] of this.adaptedLayers(name)) {
      const { weight } = layer.layer
      const data = await layer.merged(name)
      for (const [key, { data: own }] of merged)
        if (own === state[`${path}.weight`].data) result[key] = { shape: weight.stateShape, data }
    }
    return result
  }

  /**
   * Adds the active adapter to the weights of the base, removes all adapters, and resolves with the base, whose parameters stay frozen. On
   * several ranks all call it.
   */
  async mergeAndUnload(): Promise<M> {
    const name = this.activeAdapter
    if (name !== undefined)
      for (const adapted of this.adaptedLayers(name).values())
        adapted.layer.weight.assignWhole(await adapted.merged(name))
    return this.unload()
  }

  /** Removes all adapters and returns the base, whose parameters stay frozen. */
  unload(): M {
    for (const layer of this.#layers.values()) layer.detach()
    this.#layers.clear()
    this.#settings.clear()
    this.#alsoTrained.clear()
    this.#switch.active = undefined
    return this.baseModel
  }
}

/** errors: a TypeError for a name that no key can have. */
function checkAdapterName(where: string, name: string): void {
  const isName = isText(name) && /^[^.]+$/.test(name)
  checkArgument(where, 'adapterName', name, isName, 'a name without dots')
}

/** errors: a TypeError for anything but a model of `getPeftModel`. */
export function mustBePeft(where: string, model: PeftModel): void {
  const isOne = model instanceof PeftModel
  checkArgument(where, 'model', model, isOne, 'what getPeftModel returned, and not its wrapper')
}

/**
 * Freezes `model` and adds an adapter to its linear layers; returns the model with it. Like peft.get_peft_model with a LoraConfig.
 *
 * Create the optimizer, and wrap with `DistributedDataParallel`, afterwards: what is frozen has no gradient, no optimizer state, and travels
 * nowhere.
 * errors: `config.invalid` for settings that cannot be; `graph.misuse` for names that no layer has, listing those there are, and for a model
 * with adapters.
 */
export function getPeftModel<M extends Module>(
  model: M,
  config: LoraConfig,
  adapterName: string = defaultAdapter,
): PeftModel<M> {
  const where = 'getPeftModel'
  checkModule(where, model, 'model')
  const settings = settingsOf(where, config)
  return adapt(where, model, adapterName, settings, layersOf(where, model, config.targetModules))
}

/** Returns the model with an adapter for given layers, which is the active one. */
export function adapt<M extends Module>(
  where: string,
  base: M,
  name: string,
  settings: Readonly<LoraSettings>,
  layers: ReadonlyMap<string, LinearLayer>,
): PeftModel<M> {
  const adapted = base instanceof PeftModel || [...linearLayers(base).values()].some(isAdapted)
  if (adapted)
    throw new TabringError(
      'graph.misuse',
      `${where}: the model has adapters already. Call addAdapter of it for another one.`,
    )
  checkAdapterName(where, name)
  const model = new PeftModel(base)
  model.addTo(where, name, settings, layers)
  model.setAdapter(name)
  return model
}

countArguments(PeftModel, { addAdapter: 2, addTo: 4, disableAdapter: 1 })
