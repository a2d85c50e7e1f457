import { Pool } from '../graph/memory/pool.ts'
import { Tensor, TracedTensor } from '../graph/trace/tensor.ts'
import { activeTrace, type Trace } from '../graph/trace/trace.ts'
import { GraphValue } from '../graph/trace/value.ts'
import { maxControls, scalerUpdate, unscale } from '../kernels/grad-scaler/grad-scaler.ts'
import { clipped } from '../util/clipped.ts'
import { formatDevice, type PlacedDevice } from '../util/device.ts'
import { TabringError } from '../util/errors.ts'
import { isWhole } from '../util/is-whole.ts'
import { isRecord, quoted } from '../util/kind-of.ts'
import { checkArgument, checkOptions, isCount } from '../util/options.ts'
import { countArguments, refusePythonNames } from '../util/plain-callers.ts'
import { tensorType } from '../util/shape.ts'
import { statsOf } from './clip.ts'
import type { Optimizer } from './optimizer.ts'
import { scaleOf } from './scale-of-loss.ts'
import { type CommonSettings, checkSetting } from './settings.ts'

export interface GradScalerOptions {
  /** Default 65536. */
  initScale?: number
  /** Factor for the scale after `growthInterval` steps without infinite or NaN gradients; default 2. */
  growthFactor?: number
  /** Factor for the scale after an infinite or NaN gradient; default 0.5. */
  backoffFactor?: number
  /** Default 2000. */
  growthInterval?: number
  /** Default true. If false, all methods act as if there were no scaler. */
  enabled?: boolean
}

/** The scaler's state, with PyTorch's keys. */
export interface GradScalerState {
  scale: number
  growth_factor: number
  backoff_factor: number
  growth_interval: number
  _growth_tracker: number
}

const stateKeys: readonly (keyof GradScalerState)[] = [
  'scale',
  'growth_factor',
  'backoff_factor',
  'growth_interval',
  '_growth_tracker',
]

/** errors: a TypeError, naming the method, for what is no optimizer. */
function requireOptimizer(where: string, optimizer: Pick<Optimizer, 'bucketsOfStep'>): void {
  const isOptimizer = isRecord(optimizer) && typeof optimizer.bucketsOfStep === 'function'
  checkArgument(where, 'optimizer', optimizer, isOptimizer, 'an optimizer')
}

/** errors: `config.invalid` for a number that scaling cannot go by. */
function checkScaling(options: Required<GradScalerOptions>): void {
  const { initScale, growthFactor, backoffFactor, growthInterval } = options
  const check = (name: string, value: number, isValid: boolean, range: string) =>
    checkSetting('GradScaler', name, value, isValid && Number.isFinite(value), range)
  check('initScale', initScale, initScale > 0, 'a number above 0')
  check('growthFactor', growthFactor, growthFactor > 1, 'a number above 1')
  check('backoffFactor', backoffFactor, backoffFactor > 0 && backoffFactor < 1, 'between 0 and 1')
  check('growthInterval', growthInterval, isCount(growthInterval), 'a whole number above 0')
}

/** What the function being compiled has done with a scaler. */
class ScalerUse {
  /** The scale, as each loss was multiplied by it. */
  readonly scales = new Set<GraphValue['leaf']>()
  isUpdated = false
  /** What `step` and `unscale` have made, by optimizer. */
  readonly done = new Map<Optimizer, GraphValue>()
  readonly stepped = new Set<Optimizer>()

  /** errors: `graph.misuse` for a function that updates by gradients of the wrong size, or for ever by the same scale. */
  check(trace: Trace): void {
    if (trace.accumulation?.part === 'add' || trace.updates.length === 0) return
    if (this.done.size === 0) {
      throw new TabringError(
        'graph.misuse',
        'scaler.scale: the loss is scaled, but scaler.step has stepped no optimizer, so updates would be as many times too large. Call scaler.step(optimizer) instead of optimizer.step().',
      )
    }
    if (this.isUpdated) return
    throw new TabringError(
      'graph.misuse',
      'scaler.step: scaler.update is not called after it, so the scale would never change. Call scaler.update() after the last step.',
    )
  }
}

/**
 * Dynamic loss scaling, like torch.cuda.amp.GradScaler, inside the compiled step: `scale(loss).backward()`, optionally `unscale(optimizer)`
 * and clipping, then `step(optimizer)` and `update()`.
 *
 * Scaling, checking for infinite and NaN gradients, and skipping an update all happen on the device, so nothing waits for the host.
 * Learning-rate schedules run on the host and also count skipped steps.
 * cost: a pass over the gradients and about four single-thread dispatches.
 */
export class GradScaler {
  readonly #options: Required<GradScalerOptions>
  /** (scale, steps since it changed), as it was given. */
  #kept: Float32Array<ArrayBuffer>
  /** The scale that the constructor or a state gave; updates change it on the device alone. */
  #given: number
  /** The same as steps leave it, by device where a step is on several: each makes the same changes. */
  readonly #pools = new Map<string, Pool>()
  readonly #uses = new WeakMap<Trace, ScalerUse>()
  readonly #devices = new WeakMap<Trace, Map<string, PlacedDevice>>()

  constructor(options: GradScalerOptions = {}) {
    checkOptions('GradScaler', options, {
      enabled: 'flag',
      initScale: 'number',
      growthFactor: 'number',
      backoffFactor: 'number',
      growthInterval: true,
    })
    const { enabled = true, initScale = 65_536, growthInterval = 2000 } = options
    const { growthFactor = 2, backoffFactor = 0.5 } = options
    this.#options = { enabled, initScale, growthFactor, backoffFactor, growthInterval }
    checkScaling(this.#options)
    this.#kept = Float32Array.of(initScale, 0)
    this.#given = initScale
  }

  /** Returns the loss times the scale: call `backward` on it. */
  scale(loss: Tensor): Tensor {
    checkArgument('scaler.scale', 'loss', loss, loss instanceof Tensor, 'a tensor')
    if (!this.#options.enabled) return loss
    const trace = activeTrace('scaler.scale')
    const pool = this.#poolOn(trace.deviceOf(loss.value), trace)
    const scale = new GraphValue(tensorType([]), { kind: 'pool', pool, start: 0 })
    this.#useIn(trace).scales.add(scale.leaf)
    return loss.mul(new TracedTensor(scale))
  }

  /** Divides the optimizer's gradients by the scale, for clipping; `step` does it if this was not called. */
  unscale<S extends CommonSettings>(optimizer: Optimizer<S>): void {
    requireOptimizer('scaler.unscale', optimizer)
    this.#unscale(optimizer, 'scaler.unscale')
  }

  #unscale<S extends CommonSettings>(optimizer: Optimizer<S>, where: string): void {
    const trace = activeTrace(where)
    const key = optimizer as unknown as Optimizer
    if (!this.#options.enabled || trace.accumulation?.part === 'add') return
    const { done, scales } = this.#useIn(trace)
    if (scales.size === 0) {
      throw new TabringError(
        'graph.misuse',
        `${where}: no loss is scaled in this function, so updates would be as many times too small. Write scaler.scale(loss).backward().`,
      )
    }
    if (done.has(key)) {
      throw new TabringError(
        'graph.misuse',
        'scaler.unscale: called twice for one optimizer in one step, or after scaler.step, which divides too. Remove this call, or move it before scaler.step.',
      )
    }
    const buckets = optimizer.bucketsOfStep(trace, where)
    const gradients = buckets.flatMap(({ parameters }) =>
      parameters.flatMap((one) => trace.gradients.get(one) ?? []),
    )
    const losses = new Set(gradients.flatMap((one) => trace.lossesOf.get(one) ?? []))
    for (const loss of losses) {
      const power = scaleOf(trace, loss, ({ leaf }) => scales.has(leaf))
      if (power === undefined || power === 1) continue
      const problem = Number.isNaN(power)
        ? 'a sum of which one term is scaled and another is not, so updates by that would be as many times too small. Scale the sum: scaler.scale(loss.add(other)).backward().'
        : power > 1
          ? 'a loss that is scaled more than once, so updates would be as many times too large. Call scaler.scale once.'
          : 'a loss that is not scaled, so updates by it would be as many times too small. Call it on what scaler.scale returns: scaler.scale(loss).backward().'
      throw new TabringError('graph.misuse', `${where}: backward was called on ${problem}`)
    }
    if (buckets.some((bucket) => trace.controls.has(bucket))) {
      throw new TabringError(
        'graph.misuse',
        `${where}: the gradients are already clipped. Call scaler.unscale before clipping.`,
      )
    }
    const stats = statsOf(buckets, 'l2', trace)
    const [value] = trace.emitJoint(unscale, [stats, this.#state(trace.deviceOf(stats), trace)], {})
    for (const { device } of buckets) this.#poolOn(device, trace)
    for (const bucket of buckets) trace.controls.set(bucket, { value, maySkip: true })
    done.set(key, value)
  }

  /** Runs `optimizer.step()`, which changes nothing in a step with an infinite or NaN gradient. */
  step<S extends CommonSettings>(optimizer: Optimizer<S>): void {
    requireOptimizer('scaler.step', optimizer)
    const trace = activeTrace('scaler.step')
    const key = optimizer as unknown as Optimizer
    if (this.#options.enabled) {
      const { done, stepped } = this.#useIn(trace)
      if (stepped.has(key)) {
        throw new TabringError(
          'graph.misuse',
          'scaler.step: called twice for one optimizer in one step. Remove the second call.',
        )
      }
      if (!done.has(key)) this.#unscale(optimizer, 'scaler.step')
      stepped.add(key)
    }
    optimizer.step()
  }

  /** Sets the scale for the next step; call it after `step` of all optimizers. errors: `graph.misuse` if none has stepped. */
  update(): void {
    const trace = activeTrace('scaler.update')
    if (!this.#options.enabled || trace.accumulation?.part === 'add') return
    const use = this.#useIn(trace)
    if (use.isUpdated) {
      throw new TabringError(
        'graph.misuse',
        'scaler.update: called twice in one step. Remove the second call.',
      )
    }
    const controls = [...use.done.values()]
    if (controls.length === 0 || controls.length > maxControls) {
      throw new TabringError(
        'graph.misuse',
        controls.length === 0
          ? 'scaler.update: no optimizer has stepped. Call scaler.step(optimizer) first.'
          : `scaler.update: expected at most ${maxControls} optimizers, got ${controls.length}. Use a second scaler.`,
      )
    }
    use.isUpdated = true
    const options = this.#options
    trace.consistency.add({
      of: 'GradScaler',
      fixed: 'scales the loss',
      read: () => [
        ['growthFactor', options.growthFactor],
        ['backoffFactor', options.backoffFactor],
        ['growthInterval', options.growthInterval],
        ['scale', this.#given],
      ],
    })
    const attrs = {
      growth: trace.scalars.add(() => options.growthFactor),
      backoff: trace.scalars.add(() => options.backoffFactor),
      interval: trace.scalars.add(() => options.growthInterval),
    }
    for (const device of this.#devicesIn(trace).values())
      trace.emitJoint(scalerUpdate, [this.#state(device, trace), ...controls], attrs)
  }

  /** Returns the scale of the next step. cost: a copy and a wait for the device. */
  async getScale(): Promise<number> {
    return this.#options.enabled ? (await this.#read())[0] : 1
  }

  async stateDict(): Promise<GradScalerState> {
    const [scale, tracker] = await this.#read()
    const { growthFactor, backoffFactor, growthInterval } = this.#options
    return {
      scale,
      growth_factor: growthFactor,
      backoff_factor: backoffFactor,
      growth_interval: growthInterval,
      _growth_tracker: tracker,
    }
  }

  /**
   * Loads a saved state. errors: `data.malformed` for a state with other keys, `config.invalid` for numbers that the constructor refuses;
   * then nothing changes.
   */
  loadStateDict(state: GradScalerState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: GradScalerState): () => void {
    for (const key of stateKeys) {
      if (typeof state?.[key] === 'number') continue
      throw new TabringError(
        'data.malformed',
        `loadStateDict: GradScaler expected a number as "${key}", got ${quoted(state?.[key])}. Load the result of await scaler.stateDict().`,
      )
    }
    const surplus = Object.keys(state).find((key) => !stateKeys.some((known) => known === key))
    if (surplus !== undefined) {
      throw new TabringError(
        'data.malformed',
        `loadStateDict: GradScaler expected only ${stateKeys.join(', ')}, got "${clipped(surplus)}". Load the result of await scaler.stateDict().`,
      )
    }
    const options = {
      ...this.#options,
      initScale: state.scale,
      growthFactor: state.growth_factor,
      backoffFactor: state.backoff_factor,
      growthInterval: state.growth_interval,
    }
    checkScaling(options)
    const tracker = state._growth_tracker
    checkSetting('GradScaler', '_growth_tracker', tracker, isWhole(tracker), 'whole, at least 0')
    return () => {
      Object.assign(this.#options, options)
      this.#kept = Float32Array.of(state.scale, tracker)
      this.#given = state.scale
      for (const pool of this.#pools.values()) pool.write(this.#kept)
    }
  }

  #state(device: PlacedDevice | undefined, trace: Trace): GraphValue {
    const pool = this.#poolOn(device, trace)
    return new GraphValue(tensorType([2]), { kind: 'pool', pool, start: 0 })
  }

  /**
   * The state on a device that the function being compiled uses. errors: `device.mismatch` for another device than those of a program that
   * has run: it does not have what that one changed.
   */
  #poolOn(device: PlacedDevice | undefined, trace: Trace): Pool {
    const own = device ?? trace.device
    const key = formatDevice(own)
    this.#devicesIn(trace).set(key, own)
    const known = this.#pools.get(key)
    if (known) return known
    if ([...this.#pools.values()].some(({ memory }) => memory)) {
      throw new TabringError(
        'device.mismatch',
        `GradScaler: the program runs on ${key}, but the scale is on ${[...this.#pools.keys()].join(', ')}. After model.to(device), create the scaler again and load its state.`,
      )
    }
    const pool = new Pool('gradient scaler', 2, own)
    pool.write(this.#kept)
    this.#pools.set(key, pool)
    return pool
  }

  #devicesIn(trace: Trace): Map<string, PlacedDevice> {
    const devices = this.#devices.get(trace) ?? new Map<string, PlacedDevice>()
    this.#devices.set(trace, devices)
    return devices
  }

  /** As the steps of this rank left it. */
  async #read(): Promise<Float32Array> {
    const used = [...this.#pools.values()].find(({ memory }) => memory)
    return used ? ((await used.read()) as Float32Array) : this.#kept
  }

  #useIn(trace: Trace): ScalerUse {
    const known = this.#uses.get(trace)
    if (known) return known
    const use = new ScalerUse()
    this.#uses.set(trace, use)
    trace.whenTraced.push(() => use.check(trace))
    return use
  }
}

countArguments(GradScaler)
refusePythonNames(GradScaler, { unscale_: 'scaler.unscale(optimizer)' })
