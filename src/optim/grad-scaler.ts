import { Pool } from '../graph/memory/pool.ts'
import { Tensor, TracedTensor } from '../graph/trace/tensor.ts'
import { activeTrace, type Trace } from '../graph/trace/trace.ts'
import { GraphValue } from '../graph/trace/value.ts'
import { mostControls, scalerUpdate, unscale } from '../kernels/grad-scaler/grad-scaler.ts'
import { formatDevice, type PlacedDevice } from '../util/device.ts'
import { TabringError } from '../util/errors.ts'
import { isRecord, quoted } from '../util/kind-of.ts'
import { checkArgument, checkOptions } from '../util/options.ts'
import { tensorType } from '../util/shape.ts'
import { statsOf } from './clip.ts'
import type { Optimizer } from './optimizer.ts'
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
  /** The same as steps leave it, by device where a step is on several: each makes the same changes. */
  readonly #pools = new Map<string, Pool>()
  /** What `step` and `unscale` have done in the function being compiled. */
  readonly #steps = new WeakMap<Trace, Map<Optimizer, GraphValue>>()
  readonly #devices = new WeakMap<Trace, Map<string, PlacedDevice>>()

  constructor(options: GradScalerOptions = {}) {
    checkOptions('GradScaler', options, {
      enabled: true,
      initScale: true,
      growthFactor: true,
      backoffFactor: true,
      growthInterval: true,
    })
    const { enabled = true, initScale = 65_536, growthInterval = 2000 } = options
    const { growthFactor = 2, backoffFactor = 0.5 } = options
    checkSetting('GradScaler', 'initScale', initScale, initScale > 0, 'above 0')
    checkSetting('GradScaler', 'growthFactor', growthFactor, growthFactor > 1, 'above 1')
    const isBackoff = backoffFactor > 0 && backoffFactor < 1
    checkSetting('GradScaler', 'backoffFactor', backoffFactor, isBackoff, 'between 0 and 1')
    const isWhole = Number.isInteger(growthInterval) && growthInterval > 0
    checkSetting('GradScaler', 'growthInterval', growthInterval, isWhole, 'a whole number above 0')
    this.#options = { enabled, initScale, growthFactor, backoffFactor, growthInterval }
    this.#kept = Float32Array.of(initScale, 0)
  }

  /** Returns the loss times the scale: call `backward` on it. */
  scale(loss: Tensor): Tensor {
    checkArgument('scaler.scale', 'loss', loss, loss instanceof Tensor, 'a tensor')
    if (!this.#options.enabled) return loss
    const trace = activeTrace('scaler.scale')
    const pool = this.#poolOn(trace.deviceOf(loss.value), trace)
    return loss.mul(
      new TracedTensor(new GraphValue(tensorType([]), { kind: 'pool', pool, start: 0 })),
    )
  }

  /** Divides the optimizer's gradients by the scale, for clipping; `step` does it if this was not called. */
  unscale<S extends CommonSettings>(optimizer: Optimizer<S>): void {
    requireOptimizer('scaler.unscale', optimizer)
    const trace = activeTrace('scaler.unscale')
    const key = optimizer as unknown as Optimizer
    if (!this.#options.enabled || trace.accumulation?.part === 'add') return
    const done = this.#doneIn(trace)
    if (done.has(key)) {
      throw new TabringError(
        'graph.misuse',
        'scaler.unscale: called twice for one optimizer in one step. Remove the second call.',
      )
    }
    const buckets = optimizer.bucketsOfStep(trace, 'scaler.unscale')
    if (buckets.some((bucket) => trace.controls.has(bucket))) {
      throw new TabringError(
        'graph.misuse',
        'scaler.unscale: the gradients are already clipped. Call unscale before clipping.',
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
    const isDone = this.#doneIn(trace).has(optimizer as unknown as Optimizer)
    if (!isDone) this.unscale(optimizer)
    optimizer.step()
  }

  /** Sets the scale for the next step; call it after `step` of all optimizers. errors: `graph.misuse` if none has stepped. */
  update(): void {
    const trace = activeTrace('scaler.update')
    if (!this.#options.enabled || trace.accumulation?.part === 'add') return
    const controls = [...this.#doneIn(trace).values()]
    if (controls.length === 0 || controls.length > mostControls) {
      throw new TabringError(
        'graph.misuse',
        controls.length === 0
          ? 'scaler.update: no optimizer has stepped. Call scaler.step(optimizer) first.'
          : `scaler.update: expected at most ${mostControls} optimizers, got ${controls.length}. Use a second scaler.`,
      )
    }
    const options = this.#options
    trace.alike.add({
      of: 'GradScaler',
      fixed: 'scales the loss',
      read: () => [
        ['growthFactor', options.growthFactor],
        ['backoffFactor', options.backoffFactor],
        ['growthInterval', options.growthInterval],
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

  /** Loads a saved state. errors: `data.malformed` for a state with a missing key. */
  loadStateDict(state: GradScalerState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: GradScalerState): () => void {
    for (const key of stateKeys) {
      if (typeof state?.[key] === 'number') continue
      throw new TabringError(
        'data.malformed',
        `loadStateDict: GradScaler expected a number as "${key}", got ${quoted(state?.[key])}. Load the result of scaler.stateDict().`,
      )
    }
    return () => {
      this.#options.growthFactor = state.growth_factor
      this.#options.backoffFactor = state.backoff_factor
      this.#options.growthInterval = state.growth_interval
      this.#kept = Float32Array.of(state.scale, state._growth_tracker)
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

  #doneIn(trace: Trace): Map<Optimizer, GraphValue> {
    let done = this.#steps.get(trace)
    if (!done) {
      done = new Map()
      this.#steps.set(trace, done)
    }
    return done
  }
}
