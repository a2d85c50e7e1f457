import type { Parameter } from '../../graph/trace/parameter.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { ModuleDict } from '../containers.ts'
import { Dropout } from '../dropout.ts'
import { normalNumbers } from '../init.ts'
import { Linear } from '../layers.ts'
import { type LoraSettings, scaleOf } from './config.ts'
import { isTransposed, type LinearLayer, sizesOf } from './targets.ts'

/** Which of its adapters a model adds. */
export class AdapterSwitch {
  /** Undefined: the base alone. */
  active: string | undefined
  isOff = false

  /** The adapter of the calls that are being traced; a step refuses to run once another is active. */
  get traced(): string | undefined {
    if (this.isOff) return undefined
    const was = this.active
    activeTrace('forward').refusals.push(() => {
      if (this.active === was) return
      const words = (name: string | undefined) =>
        name === undefined ? 'without an adapter' : `with adapter "${clipped(name)}"`
      throw new TabringError(
        'graph.misuse',
        `run: the step was compiled ${words(was)}, and the model is now ${words(this.active)}. Compile the step again${was === undefined ? '' : `, or call setAdapter('${clipped(was)}') before the run`}.`,
      )
    })
    return was
  }
}

/** What PEFT calls them: properties of a layer with adapters, so that they are part of its keys. */
interface Parts {
  readonly lora_dropout: ModuleDict<Dropout>
  readonly lora_A: ModuleDict<Linear>
  readonly lora_B: ModuleDict<Linear>
}

/** Returns whether a layer has adapters already. */
export const isAdapted = (layer: LinearLayer): boolean => 'lora_A' in layer

/**
 * The adapters of a linear layer: y = W x + b becomes y + scale * B A dropout(x), for the adapter that the switch names.
 *
 * The layer stays in its place, with modules in its properties `lora_A`, `lora_B` and `lora_dropout`, and a forward hook that adds.
 * shape: A [r, inFeatures], B [outFeatures, r]
 */
export class AdaptedLayer {
  readonly layer: LinearLayer
  readonly #parts: Parts = {
    lora_dropout: new ModuleDict(),
    lora_A: new ModuleDict(),
    lora_B: new ModuleDict(),
  }
  readonly #scales = new Map<string, number>()
  readonly #detach: () => void

  constructor(layer: LinearLayer, which: AdapterSwitch) {
    this.layer = layer
    Object.assign(layer, this.#parts)
    const hook = layer.registerForwardHook((_, [x], output: Tensor) => {
      const name = which.traced
      const scale = name === undefined ? undefined : this.#scales.get(name)
      if (name === undefined || scale === undefined) return undefined
      const { lora_dropout, lora_A, lora_B } = this.#parts
      const dropped = lora_dropout.get(name).forward(x as Tensor)
      const product = lora_B.get(name).forward(lora_A.get(name).forward(dropped))
      return output.add(product.mul(scale))
    })
    this.#detach = () => {
      hook.remove()
      for (const part of Object.keys(this.#parts)) Reflect.deleteProperty(layer, part)
    }
  }

  /** True if the layer's weight is [inFeatures, outFeatures]. */
  get isTransposed(): boolean {
    return isTransposed(this.layer)
  }

  has(name: string): boolean {
    return this.#scales.has(name)
  }

  add(name: string, settings: LoraSettings): void {
    const { r, loraDropout, initLoraWeights } = settings
    const { outFeatures: out, inFeatures: inner } = sizesOf(this.layer)
    const [a, b] = [new Linear(inner, r, { bias: false }), new Linear(r, out, { bias: false })]
    if (initLoraWeights === 'gaussian') a.weight.receive(normalNumbers(a.weight.count, 1 / r))
    if (initLoraWeights) b.weight.receive(new Float32Array(b.weight.count))
    this.#parts.lora_dropout.set(name, new Dropout(loraDropout))
    this.#parts.lora_A.set(name, a)
    this.#parts.lora_B.set(name, b)
    for (const part of Object.values(this.#parts)) part.train(this.layer.training)
    this.#scales.set(name, scaleOf(settings))
  }

  delete(name: string): void {
    if (!this.#scales.delete(name)) return
    for (const part of Object.values(this.#parts)) part.pop(name)
  }

  /** Makes the layer what it was. */
  detach(): void {
    this.#detach()
  }

  /** Of an adapter that it has. */
  factors(name: string): { readonly a: Parameter; readonly b: Parameter } {
    const { lora_A, lora_B } = this.#parts
    return { a: lora_A.get(name).weight, b: lora_B.get(name).weight }
  }

  /** The layer's weight with scale * B A added, in float64 and rounded once. Where ranks hold parts of it, all call it. */
  async merged(name: string): Promise<Float32Array<ArrayBuffer>> {
    const { a, b } = this.factors(name)
    const whole = await wholeOf(this.layer.weight)
    const [downs, ups] = [await wholeOf(a), await wholeOf(b)]
    const { outFeatures: out, inFeatures: inner } = sizesOf(this.layer)
    const r = a.stateShape[0]
    const scale = this.#scales.get(name)!
    const row = new Float64Array(inner)
    const [rowStep, step] = this.isTransposed ? [1, out] : [inner, 1]
    for (let o = 0; o < out; o++) {
      row.fill(0)
      for (let k = 0; k < r; k++) {
        const up = ups[o * r + k]
        for (let i = 0; i < inner; i++) row[i] += up * downs[k * inner + i]
      }
      for (let i = 0; i < inner; i++) whole[o * rowStep + i * step] += scale * row[i]
    }
    return whole
  }
}

/** The contents as a state dict has them. */
export const wholeOf = async (tensor: Parameter): Promise<Float32Array<ArrayBuffer>> =>
  tensor.stateOf(tensor.isReleased ? undefined : await tensor.read())
