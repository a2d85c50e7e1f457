import type { Parameter } from '../../graph/trace/parameter.ts'
import { clipped } from '../../util/clipped.ts'
import { DataError, TabringError } from '../../util/errors.ts'
import { formatShape, type Shape, sameShape } from '../../util/shape.ts'
import type { Module, StateDict } from '../module.ts'
import { type LoadableState, requireTensors, stateValues } from '../state-values.ts'
import { wholeOf } from './adapted-layer.ts'
import type { LoraSettings } from './config.ts'
import { adapt, mustBePeft, PeftModel } from './peft-model.ts'
import { type LinearLayer, linearLayers, sizesOf } from './targets.ts'

/** An adapter's settings and tensors, as files have them. */
export interface SavedAdapter {
  readonly settings: Readonly<LoraSettings>
  /** True if the layers' weights are [inFeatures, outFeatures], as in GPT-2. */
  readonly isTransposed: boolean
  /** A and B, by the path of their layer in the base. */
  readonly factors: ReadonlyMap<string, Factors>
  /** What is trained beside them, by keys of the base. */
  readonly others: StateDict
}

interface Factors {
  readonly a: StateDict[string]
  readonly b: StateDict[string]
}

/** Reads an adapter, by default the active one. On several ranks all call it. errors: `graph.misuse` where there is none. */
export async function readAdapter(
  where: string,
  model: PeftModel,
  adapterName?: string,
): Promise<SavedAdapter> {
  mustBePeft(where, model)
  const name = adapterName ?? model.activeAdapter
  const settings = model.peftConfig.get(name ?? '')
  if (name === undefined || !settings)
    throw new TabringError(
      'graph.misuse',
      `${where}: expected one of the adapters ${clipped([...model.peftConfig.keys()].join(', ')) || '(none)'}, got ${clipped(name ?? 'none')}. Pass adapterName.`,
    )
  const layers = model.adaptedLayers(name)
  const read = async (parameter: Parameter) => ({
    shape: parameter.stateShape,
    data: await wholeOf(parameter),
  })
  const factors = new Map<string, Factors>()
  for (const [path, layer] of layers) {
    const { a, b } = layer.factors(name)
    factors.set(path, { a: await read(a), b: await read(b) })
  }
  const others: StateDict = {}
  for (const [key, parameter] of model.alsoTrained(name)) others[key] = await read(parameter)
  const isTransposed = [...layers.values()].some((layer) => layer.isTransposed)
  return { settings, isTransposed, factors, others }
}

/** The tensors of an adapter that is loaded. */
interface Loaded {
  /** Those of A and B, and their layers, by path. */
  readonly layers: Map<string, LinearLayer>
  readonly a: Map<string, Float32Array<ArrayBuffer>>
  readonly b: Map<string, Float32Array<ArrayBuffer>>
  readonly others: Map<Parameter, Float32Array<ArrayBuffer>>
}

const factorKey = /^(.+)\.lora_([AB])\.weight$/

/**
 * Adds an adapter with given tensors to a model; returns the model with it. It is the active one where it is the first.
 *
 * `state`: by keys of the base, `<path>.lora_A.weight` and `<path>.lora_B.weight`, and what else was trained. errors: `data.malformed` for an
 * adapter that this base cannot have; then nothing changes.
 */
export function addLoaded<M extends Module>(
  where: string,
  given: M | PeftModel<M>,
  name: string,
  settings: Readonly<LoraSettings>,
  state: LoadableState,
): PeftModel<M> {
  const base = given instanceof PeftModel ? (given.baseModel as M) : given
  const { layers, a, b, others } = tensorsFor(where, base, settings, state)
  const model =
    given instanceof PeftModel
      ? (given as PeftModel<M>)
      : adapt(where, base, name, settings, layers)
  if (model === given) model.addTo(where, name, settings, layers)
  for (const [path, layer] of model.adaptedLayers(name)) {
    const factors = layer.factors(name)
    factors.a.assignWhole(a.get(path)!)
    factors.b.assignWhole(b.get(path)!)
  }
  for (const [parameter, values] of others) parameter.assignWhole(values)
  return model
}

/** errors: `data.malformed`, naming the first tensor that does not fit, and the base that the adapter is for. */
function tensorsFor(
  where: string,
  base: Module,
  { r, bias, modulesToSave, baseModelNameOrPath }: Readonly<LoraSettings>,
  state: LoadableState,
): Loaded {
  const refuse = (problem: string) =>
    new DataError(
      'data.malformed',
      `${where}: ${problem}. Load an adapter of this base; this one is for ${clipped(baseModelNameOrPath) || 'a base without a name'}.`,
    )
  requireTensors(Object.keys(state), state)
  const linear = linearLayers(base)
  const parameters = new Map(base.namedParameters())
  const loaded: Loaded = { layers: new Map(), a: new Map(), b: new Map(), others: new Map() }
  const isMore = bias !== 'none' || modulesToSave.length > 0
  const mustBe = (key: string, expected: Shape) => {
    const { shape } = state[key]
    if (sameShape(shape, expected)) return
    throw refuse(
      `"${clipped(key)}" must be ${formatShape(expected)} for this base and r ${r}, got ${formatShape(shape)}`,
    )
  }
  for (const [key, tensor] of Object.entries(state)) {
    const [, path, factor] = factorKey.exec(key) ?? []
    if (path === undefined) {
      const parameter = isMore ? parameters.get(key.replace(/\.base_layer(?=\.)/, '')) : undefined
      if (!parameter) throw refuse(`"${clipped(key)}" is neither A nor B of a linear layer`)
      mustBe(key, parameter.stateShape)
      loaded.others.set(parameter, valuesOf(key, tensor))
      continue
    }
    const layer = linear.get(path)
    if (!layer) throw refuse(`this base has no linear layer "${clipped(path)}"`)
    const { outFeatures, inFeatures } = sizesOf(layer)
    mustBe(key, factor === 'A' ? [r, inFeatures] : [outFeatures, r])
    loaded.layers.set(path, layer)
    loaded[factor === 'A' ? 'a' : 'b'].set(path, valuesOf(key, tensor))
  }
  const half = [...loaded.layers.keys()].find((path) => !loaded.a.has(path) || !loaded.b.has(path))
  if (half !== undefined)
    throw refuse(`layer "${clipped(half)}" must have A and B, got one of them`)
  if (loaded.layers.size === 0) throw refuse('the file must have A and B of a layer, got none')
  return loaded
}

const valuesOf = (key: string, tensor: LoadableState[string]) =>
  stateValues(key, tensor, 'f32') as Float32Array<ArrayBuffer>
