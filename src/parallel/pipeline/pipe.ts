import { requireDevice } from '../../graph/memory/require-device.ts'
import type { HookHandle } from '../../graph/trace/gradient-hooks.ts'
import type { StageMarks } from '../../graph/trace/stage-marks.ts'
import { Tensor } from '../../graph/trace/tensor.ts'
import { nextNodeId } from '../../graph/trace/value.ts'
import type { Module } from '../../nn/module.ts'
import { checkModule } from '../../nn/module.ts'
import { clipped } from '../../util/clipped.ts'
import {
  type DeviceSpec,
  formatDevice,
  type PlacedDevice,
  placedDevice,
} from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { isText, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkList, checkOptions, isCount } from '../../util/options.ts'
import { cutEvenly, layersOf, ownerOf, placesBy } from './cut.ts'

export interface PipelineOptions {
  /** Paths of the submodules that begin a stage, as in state-dict keys, the first stage's left out: `['layer2', 'layer3']` makes 3 stages. */
  readonly splitSpec?: readonly string[]
  /** Instead of `splitSpec`: the number of stages, cut between layers. */
  readonly stages?: number
  /** With `stages`: what a layer costs. `'parameters'` (default) counts its weights, `'layers'` 1 each; or the cost of each of `layersOf(module)`. */
  readonly balance?: 'parameters' | 'layers' | readonly number[]
  /** Devices in the order of their stages. Default: one WebGPU device for each stage. With fewer devices than stages each takes every n-th. */
  readonly devices?: readonly DeviceSpec[]
}

/** One part of a pipelined module: what lies on its device and runs there. */
export interface PipelineStage {
  readonly index: number
  readonly device: PlacedDevice
  /** Path of the submodule with which it begins; empty for the first. */
  readonly path: string
  /** Paths of its layers: what a pipeline may be cut before. */
  readonly layers: readonly string[]
  /** Keys of its parameters and buffers. */
  readonly keys: readonly string[]
}

/** A stage as errors call it: with its first and its last layer. */
export function nameOfStage({ index, layers }: PipelineStage): string {
  const [first] = layers
  if (first === undefined) return `stage ${index}`
  return `stage ${index} (${layers.length === 1 ? `"${clipped(first)}"` : `"${clipped(first)}" to "${clipped(layers[layers.length - 1])}"`})`
}

/** Forward calls layers in another order than that of the stages. */
class OrderError extends TabringError {
  static override name = 'TabringError'
  constructor(text: string) {
    super('graph.misuse', `pipeline: ${text}`)
  }
}

/** Modules that are pipelines. */
const piped = new WeakSet<Module>()

/** A module cut into stages; see `pipeline`. */
export class Pipe {
  readonly module: Module
  readonly stages: readonly PipelineStage[]
  readonly devices: readonly PlacedDevice[]
  readonly #hooks: readonly HookHandle[]
  /** Where calls are noted, while a schedule makes them, and the stage that was entered last. */
  #noting: { readonly marks: StageMarks; readonly microBatch: number; stage: number } | undefined

  constructor(module: Module, stages: readonly PipelineStage[], devices: readonly PlacedDevice[]) {
    this.module = module
    this.stages = stages
    this.devices = devices
    const byPath = new Map(module.namedModules())
    const entries = stages
      .slice(1)
      .map(({ index, path }) =>
        byPath.get(path)!.registerForwardPreHook((_module, args) => this.#enter(index, args)),
      )
    const checks = stages.flatMap((stage) =>
      stage.layers.map((layer) =>
        byPath.get(layer)!.registerForwardPreHook(() => this.#checkLayer(layer, stage)),
      ),
    )
    this.#hooks = [...entries, ...checks]
    piped.add(module)
  }

  /** Takes its hooks off the module, which stays where it is. */
  release(): void {
    for (const hook of this.#hooks) hook.remove()
    piped.delete(this.module)
  }

  /** Runs forward, which calls the module, on one micro-batch. */
  run(forward: () => Tensor, microBatch: number, marks: StageMarks): Tensor {
    this.#noting = { marks, microBatch, stage: 0 }
    try {
      this.#enter(0, [])
      const output = this.#named(forward)
      this.#checkStages(marks, microBatch)
      return output
    } finally {
      this.#noting = undefined
    }
  }

  /** What a stage throws says which one it was. */
  #named(forward: () => Tensor): Tensor {
    try {
      return forward()
    } catch (thrown) {
      if (thrown instanceof Error && !(thrown instanceof OrderError)) {
        const { stage } = this.#noting!
        thrown.message = `${nameOfStage(this.stages[stage])}: ${thrown.message}`
      }
      throw thrown
    }
  }

  /** errors: `graph.misuse` for a layer that forward calls outside of its stage. */
  #checkLayer(layer: string, stage: PipelineStage): undefined {
    const current = this.#noting?.stage
    if (current === undefined || current === stage.index) return
    const next = this.stages[current + 1]
    throw new OrderError(
      stage.index > current
        ? `stage ${next.index} begins at "${clipped(next.path)}", but forward called "${clipped(layer)}" without it. Begin stages at submodules that forward calls.`
        : `forward called "${clipped(layer)}" of ${nameOfStage(stage)} in ${nameOfStage(this.stages[current])}. Register layers in the order in which forward calls them.`,
    )
  }

  #checkStages(marks: StageMarks, microBatch: number): void {
    const entered = marks.stagesOf(microBatch)
    if (entered.join() === this.stages.map(({ index }) => index).join()) return
    const missing = this.stages.find(({ index }) => !entered.includes(index))
    throw new OrderError(
      missing
        ? `stage ${missing.index} begins at "${clipped(missing.path)}", but forward did not call it. Begin stages at submodules that forward calls.`
        : `forward called the stages in the order ${entered.join(', ')}. Begin stages at submodules that forward calls once, in their order.`,
    )
  }

  /** Moves what a stage is given to its device. */
  #enter(index: number, args: readonly unknown[]): readonly unknown[] {
    const noting = this.#noting
    if (noting) {
      noting.stage = index
      noting.marks.begin(nextNodeId(), index, noting.microBatch)
    }
    return args.map((arg) => (arg instanceof Tensor ? arg.to(this.stages[index].device) : arg))
  }
}

/**
 * Cuts a module into stages and moves each to its device, like torch.distributed.pipelining.pipeline.
 *
 * The module stays whole: its state dict has the keys that it had, and `module.forward` runs through all devices. A schedule
 * (`ScheduleGPipe`, `Schedule1F1B`, `ScheduleInterleaved1F1B`) trains it on micro-batches. Stages divide what the constructor registered, in
 * that order, so `forward` must call submodules in it, and nothing but the arguments of a stage's first submodule may cross into the stage.
 * errors: `graph.misuse` for an unknown path, paths out of order, more stages than layers; `config.invalid` for wrong options;
 * `gpu.unavailable` for a device that this tab does not have.
 */
export async function pipeline(module: Module, options: PipelineOptions): Promise<Pipe> {
  checkModule('pipeline', module)
  const { splitSpec, stages, balance, devices } = checkOptions('pipeline', options, {
    splitSpec: true,
    stages: true,
    balance: true,
    devices: true,
  })
  if (splitSpec && (stages !== undefined || balance !== undefined))
    throw misfit('splitSpec and stages or balance exclude each other. Pass one of them.')
  const begins = "paths of submodules that begin a stage, such as ['layer2']"
  if (splitSpec !== undefined) checkList('pipeline', 'splitSpec', splitSpec, isText, begins)
  if (devices !== undefined) checkList('pipeline', 'devices', devices, () => true, 'devices')
  if (piped.has(module))
    throw misfit('the module is a pipeline already. Call pipe.release() first.')
  const paths = ['', ...(splitSpec ?? evenPaths(module, stages, balance))]
  const known = [...module.namedModules()].map(([path]) => path)
  const places = paths.map((path) => known.indexOf(path))
  for (const [index, place] of places.entries()) {
    if (index > 0 && (place < 0 || place <= places[index - 1])) throw wrongPath(paths, index, place)
  }
  const placed = (devices ?? paths.map((_, index) => `webgpu:${index}`)).map((spec) =>
    placedDevice(spec),
  )
  if (placed.length === 0) throw misfit('devices is empty. Name at least one, or omit it.')
  const names = placed.map(formatDevice)
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (twice)
    throw misfit(
      `devices has ${twice} twice. Name each once: with fewer devices than stages they take turns.`,
    )
  if (placed.length > paths.length) {
    const [name, ...rest] = names.slice(paths.length)
    const idle = rest.length > 0 ? `${name} and ${rest.length} more have` : `${name} has`
    throw misfit(
      `${paths.length} ${paths.length === 1 ? 'stage' : 'stages'} for ${placed.length} devices, so ${idle} none. Make more stages, or list fewer devices.`,
    )
  }
  const stageOfModule = placesBy(module, paths)
  const stageOf = (key: string) => stageOfModule(ownerOf(key))
  const layers = layersOf(module).map(([path]) => path)
  // Errors name them.
  module.buffers()
  const tensors = [...module.namedParameters(), ...module.namedBuffers()]
  const made = paths.map(
    (path, index): PipelineStage => ({
      index,
      device: placed[index % placed.length],
      path,
      layers: layers.filter((layer) => stageOfModule(layer) === index),
      keys: tensors.flatMap(([key]) => (stageOf(key) === index ? [key] : [])),
    }),
  )
  for (const target of placed) await requireDevice('pipeline', target)
  for (const [key, tensor] of tensors) await tensor.moveToDevice(made[stageOf(key)].device)
  return new Pipe(module, made, placed)
}

const misfit = (text: string) => new TabringError('config.invalid', `pipeline: ${text}`)

function evenPaths(
  module: Module,
  stages: number | undefined,
  balance: PipelineOptions['balance'] = 'parameters',
): string[] {
  if (stages === undefined || !isCount(stages)) {
    throw new TabringError(
      'config.invalid',
      `pipeline: expected splitSpec or a number of stages above 0, got ${quoted(stages)}. Pass { stages: 2 } or { splitSpec: ['layer2'] }.`,
    )
  }
  const isList = typeof balance === 'object' && Array.isArray(balance)
  const isBalance = isList || balance === 'parameters' || balance === 'layers'
  checkArgument('pipeline', 'balance', balance, isBalance, '"parameters", "layers" or costs')
  const layers = layersOf(module)
  const costs =
    typeof balance === 'object'
      ? balance
      : balance === 'layers'
        ? layers.map(() => 1)
        : parameterCounts(
            module,
            layers.map(([path]) => path),
          )
  if (costs.length !== layers.length) {
    throw new TabringError(
      'config.invalid',
      `pipeline: balance has ${costs.length} costs, but the module has ${layers.length} layers: ${layers.map(([path]) => path).join(', ')}. Pass a cost for each.`,
    )
  }
  const wrong = costs.findIndex((cost) => !(Number.isFinite(cost) && cost >= 0))
  if (wrong >= 0)
    throw misfit(
      `balance[${wrong}] must be a number of 0 or more, got ${quoted(costs[wrong])}. Correct it.`,
    )
  return cutEvenly(costs, stages).map((at) => layers[at][0])
}

/** Of each layer, what comes between it and the next one included. */
function parameterCounts(module: Module, paths: readonly string[]): number[] {
  const placeOf = placesBy(module, paths)
  const counts = paths.map(() => 0)
  for (const [key, { count }] of module.namedParameters())
    counts[Math.max(0, placeOf(ownerOf(key)))] += count
  return counts
}

function wrongPath(paths: readonly string[], index: number, place: number): TabringError {
  const text =
    place < 0
      ? `the module has no submodule "${clipped(paths[index])}". Use a path as in its state dict, such as "layer2.0".`
      : `stage ${index} begins at "${clipped(paths[index])}", which is not after "${clipped(paths[index - 1])}". Name submodules in the order in which forward calls them.`
  return new TabringError('graph.misuse', `pipeline: ${text}`)
}
