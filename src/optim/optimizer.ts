import { zeros } from '../graph/functions/shape.ts'
import type { Pool } from '../graph/memory/pool.ts'
import { type Bucket, layOutBuckets } from '../graph/trace/bucket.ts'
import { Unsettled } from '../graph/trace/exchange.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { activeTrace, type Trace } from '../graph/trace/trace.ts'
import { emitNode, type GraphNode, GraphValue } from '../graph/trace/value.ts'
import { accumulate, takeAccumulated } from '../kernels/accumulate/accumulate.ts'
import { type SettleAttrs, settle } from '../kernels/grad-scaler/settle.ts'
import type { Op } from '../kernels/op.ts'
import type { UpdateAttrs } from '../kernels/update/rule.ts'
import { clipped } from '../util/clipped.ts'
import { formatDevice } from '../util/device.ts'
import { invariant, TabringError } from '../util/errors.ts'
import { isSameList } from '../util/is-same-list.ts'
import { isRecord } from '../util/kind-of.ts'
import { checkRecord } from '../util/options.ts'
import { countArguments, refusePythonNames } from '../util/plain-callers.ts'
import { countElements, formatShape, sameShape, tensorType } from '../util/shape.ts'
import { checkGroup, checkKinds, checkSettingNames, requireList } from './check-params.ts'
import { Cohort } from './cohort.ts'
import type { ExactOptimizer, ExactSettings } from './exact/exact-optimizer.ts'
import { type ExactTraining, exactTrainings } from './exact/exact-training.ts'
import { consistentContents, consistentGroup, markOfState } from './group-settings-check.ts'
import { commonSteps, type LoadedState, tensorsOf, wholeState } from './loaded-state.ts'
import { noGradient, owners } from './parameter-buckets.ts'
import { replicaBucketBytes, sumOverReplicas } from './replicas.ts'
import { type CommonSettings, overlay, type ParamGroup, type Params } from './settings.ts'
import type { Slice } from './slice.ts'
import {
  groupFromDict,
  groupToDict,
  type OptimizerStateDict,
  requireState,
  type SettingValue,
  type StateEntry,
  type StateNames,
  type StateTensor,
  stepsIn,
} from './state-dict.ts'
import { warnOfUnlisted } from './warn-unlisted.ts'

/**
 * Base class of all optimizers: groups, buckets, slices, step counts and state dicts. Subclasses add the update rule.
 *
 * With several ranks each one updates its own slice using its own slice of the state, and the program gathers the rest.
 */
export abstract class Optimizer<Settings extends CommonSettings = CommonSettings> {
  /** The groups with their settings. Numbers can be changed between steps, except a `momentum` that was 0 when the step was compiled. */
  readonly paramGroups: ParamGroup<Settings>[]
  readonly defaults: Readonly<Settings>
  /** Steps begun so far; 1 during the first. Includes steps that a GradScaler skipped. Parameters that join later have their own count. */
  get stepCount(): number {
    return this.#host?.steps ?? this.#stepCount
  }
  #stepCount = 0
  /** True if the saved state of each parameter has PyTorch's `step`. */
  protected readonly savesStep: boolean = true
  /** The states that `update` asks its slices for. */
  protected abstract readonly stateNames: StateNames
  readonly #cohorts = new Map<ParamGroup<Settings>, Cohort[]>()
  /** Made in a trace under way. */
  readonly #making = new WeakMap<Trace, Map<ParamGroup<Settings>, Cohort[]>>()
  #bucketCount = 0
  /** State that was loaded, for pools that are made later. */
  #loaded = new Map<Parameter, LoadedState>()
  /** With exact training: the updates, and all of the state. */
  #host: ExactOptimizer | undefined
  /** Hashes of whole states that were loaded since ranks agreed on them. */
  #loadedMarks: ReadonlyMap<Parameter, number> = new Map()
  /** What was loaded last. */
  #saved: OptimizerStateDict | undefined
  /** What fills a state at first, by name. */
  readonly #initial = new Map<string, number>()

  constructor(params: Params<Settings>, defaults: Settings, options: Partial<Settings>) {
    checkRecord(this.constructor.name, 'defaults', defaults)
    checkSettingNames(this.constructor.name, options, defaults)
    this.defaults = overlay(defaults, options)
    checkKinds(this.constructor.name, this.defaults, defaults)
    requireList(this.constructor.name, params)
    const isGrouped = isRecord(params[0]) && 'params' in params[0]
    const groups = (isGrouped ? params : [{ params }]) as (Partial<Settings> & {
      params: readonly Parameter[]
    })[]
    this.paramGroups = groups.map((group) => this.#makeGroup(group))
    const all = this.#parameters
    const refused = (problem: string) =>
      new TabringError('graph.misuse', `${this.constructor.name}: ${problem}`)
    if (all.length === 0) throw refused('params has no parameters. Pass model.parameters().')
    const twice = all.findIndex((parameter, i) => all.indexOf(parameter) < i)
    if (twice >= 0) {
      const { name } = all[twice]
      throw refused(
        `parameter ${name ? `"${clipped(name)}"` : twice} is listed twice among ${all.length}. List each parameter once.`,
      )
    }
    for (const parameter of all) owners.set(parameter, this as unknown as Optimizer)
  }

  /** Adds a group. Programs compiled later update it too, earlier ones refuse to run. errors: `graph.misuse` for a parameter that already is in a group. */
  addParamGroup(group: Partial<Settings> & { readonly params: readonly Parameter[] }): void {
    const made = this.#makeGroup(group)
    const known = this.#parameters
    const twice = group.params.find((parameter) => known.includes(parameter))
    if (twice) {
      throw new TabringError(
        'graph.misuse',
        `addParamGroup: "${clipped(twice.name)}" is already in a group. Remove it from the new one.`,
      )
    }
    this.paramGroups.push(made)
    for (const parameter of group.params) owners.set(parameter, this as unknown as Optimizer)
  }

  /** Discards the gradients computed by `backward` so far in the function being compiled. */
  zeroGrad(): void {
    const trace = activeTrace('zeroGrad')
    for (const { params } of this.paramGroups) {
      for (const parameter of params) trace.gradients.delete(parameter)
    }
  }

  /**
   * Adds the update of every parameter that has a gradient to the function being compiled.
   *
   * In a micro-step of gradient accumulation it adds the gradients to the accumulated ones instead. Warns if the loss depends on parameters
   * that no module lists and no optimizer has.
   * errors: `graph.misuse` if no parameter has a gradient.
   */
  step(): void {
    const trace = activeTrace('optimizer.step')
    const exact = this.#exact
    if (exact) {
      this.#refuseChanges(trace)
      exact.step(this)
      warnOfUnlisted(trace, this.#parameters)
      return
    }
    const isUpdate = trace.accumulation?.part !== 'add'
    this.#refuseDivided()
    this.#refuseChanges(trace)
    this.fillUnused(trace)
    const updated: Cohort[] = []
    for (const [at, group] of this.paramGroups.entries()) {
      const cohorts = this.#cohortsOf(group, trace)
      for (const cohort of cohorts) {
        const control = this.#controlOf(group, cohort, trace)
        for (const bucket of cohort.buckets) {
          const own = bucket.parameters.map((parameter) => {
            const gradient = trace.gradients.get(parameter)
            if (!gradient) throw gradientMissing(parameter)
            return gradient
          })
          const gradients = sumOverReplicas(trace, bucket.parameters, own)
          const slice = this.#sliceOf(bucket, cohort, trace, control)
          // A rank without a part of the bucket makes its states, too, empty ones: all ranks know the same names.
          const made = isUpdate ? this.update(trace, slice, group) : []
          const nodes = slice.length > 0 ? made : []
          trace.updates.push({ bucket, gradients, completion: completionOf(bucket, trace), nodes })
        }
        updated.push(cohort)
      }
      if (cohorts.length === 0) continue
      const name = `${this.constructor.name}, group ${at}`
      const settings = Object.keys(this.defaults)
      trace.consistency.add(consistentGroup(name, group, settings, cohorts, this.savesStep))
    }
    if (updated.length === 0) throw noGradient('optimizer.step', this.#parameters, trace)
    warnOfUnlisted(trace, this.#parameters)
    if (!isUpdate) return
    const shared = new Set([...this.#parameters, ...(trace.exchange?.parameters ?? [])])
    trace.consistency.addContents(
      consistentContents(this.constructor.name, [...shared], {
        marks: () => this.#loadedMarks,
        agree: (marks) => {
          if (this.#loadedMarks === marks) this.#loadedMarks = new Map()
        },
        read: () => this.#readState(),
      }),
    )
    trace.beforeStep.push(() => {
      this.#stepCount++
      for (const cohort of updated) cohort.steps++
    })
  }

  /**
   * Gives zero gradients to parameters that other ranks use and this rank does not, if the model is wrapped to find unused parameters.
   *
   * Parameters that no rank uses keep their value. errors: `Unsettled` until the ranks have agreed.
   */
  fillUnused(trace: Trace): void {
    const all = this.#parameters
    const exchange = all[0]?.exchange
    if (!exchange?.settings.findsUnused || exchange.size === 1) return
    const isUsed = (parameter: Parameter) => trace.gradients.has(parameter)
    const { settled } = trace
    if (settled && !settled.used.has(this)) {
      const own = all.filter(isUsed).sort((a, b) => idOfGradient(trace, a) - idOfGradient(trace, b))
      const settling = exchange.compiling
        .settleUsed(own)
        .then((used) => settled.used.set(this, used))
      throw new Unsettled('which parameters are used', settling)
    }
    const used = settled?.used.get(this) ?? this.cohorts.flatMap(({ parameters }) => parameters)
    for (const parameter of used) {
      if (!isUsed(parameter)) trace.gradients.set(parameter, zeros(parameter.shape).value)
    }
  }

  /** Groups of parameters with the same number of updates, in the order in which they joined. */
  get cohorts(): readonly Cohort[] {
    return [...this.#cohorts.values()].flat()
  }

  /** All buckets created so far, in the order of their exchange. */
  get buckets(): Bucket[] {
    return this.cohorts.flatMap(({ buckets }) => buckets).sort((a, b) => a.index - b.index)
  }

  get #parameters(): Parameter[] {
    return this.paramGroups.flatMap(({ params }) => params)
  }

  /** Who trains its parameters exactly. errors: `graph.misuse` where that is so for some of them alone. */
  get #exact(): ExactTraining | undefined {
    const all = this.#parameters
    const [exact, ...others] = new Set(all.map((parameter) => exactTrainings.get(parameter)))
    if (others.length === 0) return exact
    throw new TabringError(
      'graph.misuse',
      'optimizer.step: only some parameters are those of a model that is wrapped with exact. Use an optimizer for these alone.',
    )
  }

  /** @internal The settings of its update on the host; undefined where that has no such form. */
  hostForm(): ExactSettings | undefined {
    return undefined
  }

  /** @internal Has its updates and its state on the host from now on, beginning with what was loaded. */
  moveToHost(make: () => ExactOptimizer): ExactOptimizer {
    if (!this.#host) {
      this.#host = make()
      if (this.#saved) this.#host.loadStateDict(this.#saved)
    }
    return this.#host
  }

  /** The buckets updated by the step being compiled. errors: `graph.misuse` if it has already updated them. */
  bucketsOfStep(trace: Trace, what: string): Bucket[] {
    const exact = this.#exact
    if (exact) throw exact.refusal(what)
    const cohorts = this.paramGroups.flatMap((group) => this.#cohortsOf(group, trace))
    const buckets = cohorts.flatMap((cohort) => cohort.buckets)
    if (buckets.length === 0) throw noGradient(what, this.#parameters, trace)
    if (trace.updates.some(({ bucket }) => buckets.includes(bucket))) {
      throw new TabringError(
        'graph.misuse',
        `${what}: called after optimizer.step(). Call it between backward() and step().`,
      )
    }
    return buckets
  }

  /**
   * Returns the whole state on the host, in PyTorch's layout. Together with the parameters it lets a run resume bit for bit.
   *
   * With several ranks, each of which holds a slice or a part of the state, all must call it between the same steps; each gets the whole
   * state.
   * cost: one copy and wait per state and bucket; with several ranks also an all-gather of each. errors: `peer.*`.
   */
  async stateDict(): Promise<OptimizerStateDict> {
    if (this.#host) {
      const own = await this.#host.stateDict()
      const [group] = this.paramGroups
      const settings = groupToDict({ ...group } as unknown as Record<string, unknown>, [])
      return { ...own, param_groups: [{ ...settings, ...own.param_groups[0] }] }
    }
    const all = this.#parameters
    const state: Record<number, StateEntry> = {}
    const current = await this.#readState()
    for (const [index, parameter] of all.entries()) {
      const now = current.get(parameter)
      const own = now?.steps ? now : this.#loaded.get(parameter)
      if (!own) continue
      const tensors: Record<string, StateTensor> = {}
      for (const [name, { data }] of Object.entries(own.tensors))
        tensors[name] = {
          shape: parameter.stateShape,
          data: await parameter.stateOf(parameter.isReleased ? undefined : data),
        }
      state[index] = this.savesStep ? { step: own.steps, ...tensors } : tensors
    }
    let index = 0
    return {
      state,
      param_groups: this.paramGroups.map((group) =>
        groupToDict(
          { ...group } as unknown as Record<string, unknown>,
          group.params.map(() => index++),
        ),
      ),
    }
  }

  /**
   * Loads a state from `stateDict` for a model with the same parameters in the same order, before or after compiling.
   *
   * Settings that decide which states exist (`momentum` above 0, `nesterov`, `amsgrad`, `centered`) must match a step that is already
   * compiled; otherwise its next run fails and the step must be compiled again.
   * errors: `data.malformed`, naming the difference, `config.invalid` for invalid settings; then nothing changes. `graph.misuse` if a
   * compiled step updates parameters together that have different step counts in the saved run: then load before compiling.
   */
  loadStateDict(saved: OptimizerStateDict): void {
    this.prepareLoad(saved)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(saved: OptimizerStateDict): () => void {
    const counts = this.paramGroups.map(({ params }) => params.length)
    requireState(this.constructor.name, saved, counts, this.stateNames, this.savesStep)
    const loaded = new Map<Parameter, LoadedState>()
    const marks = new Map<Parameter, number>()
    this.paramGroups.forEach((group, at) => {
      const indices = saved.param_groups[at]['params'] as readonly number[]
      group.params.forEach((parameter, i) => {
        const entry = saved.state[indices[i]]
        const tensors = entry ? tensorsOf(entry) : {}
        marks.set(parameter, markOfState(tensors))
        if (!entry) return
        for (const [name, { shape, data }] of Object.entries(tensors)) {
          if (!sameShape(shape, parameter.stateShape) || data.length !== countElements(shape)) {
            throw new TabringError(
              'data.malformed',
              `loadStateDict: ${name} of "${clipped(parameter.name)}" must be ${formatShape(parameter.stateShape)}, got ${formatShape(shape)}. Load a state saved for this model.`,
            )
          }
        }
        // SGD saves no step; a momentum buffer shows that there was one.
        const isBegun = Object.keys(tensors).length > 0
        const { shape } = parameter.value.type
        const parts = Object.entries(tensors).map(
          ([name, { data }]) => [name, { shape, data: parameter.partOf(data) }] as const,
        )
        loaded.set(parameter, {
          steps: stepsIn(entry) ?? (isBegun ? 1 : 0),
          tensors: Object.fromEntries(parts),
        })
      })
    })
    const stepsOf = ({ parameters }: Cohort) => commonSteps(parameters, loaded)
    const cohorts = this.cohorts.map((cohort) => [cohort, stepsOf(cohort)] as const)
    const groups = this.paramGroups.map((group, at) =>
      groupFromDict(
        this.constructor.name,
        group as unknown as Readonly<Record<string, unknown>>,
        Object.keys(this.defaults),
        saved.param_groups[at] as Record<string, SettingValue>,
      ),
    )
    for (const group of groups) this.#checkSettings(group as unknown as Settings)
    const loadOnHost = this.#host?.prepareLoad(saved)
    return () => {
      this.#saved = saved
      loadOnHost?.()
      groups.forEach((group, at) => {
        Object.assign(this.paramGroups[at], group)
      })
      this.#loaded = loaded
      this.#loadedMarks = marks
      this.#stepCount = Math.max(0, ...[...loaded.values()].map(({ steps }) => steps))
      for (const [cohort, steps] of cohorts) cohort.restart(steps)
      for (const bucket of this.buckets) {
        for (const [name, pool] of bucket.state) this.#fillState(bucket, name, pool)
      }
    }
  }

  /** Emits the update of one slice. */
  protected abstract update(trace: Trace, slice: Slice, group: ParamGroup<Settings>): GraphNode[]

  /** Names the settings that depend on the number of updates made, for steps that a GradScaler may skip. */
  protected settleAttrs(
    _trace: Trace,
    _group: ParamGroup<Settings>,
    _steps: () => number,
  ): SettleAttrs {
    return { form: 'plain' }
  }

  /**
   * Returns the setting, if any, whose change from `compiled` to `now` needs a new compilation: one that chose kernels or states.
   *
   * All others are step scalars, which each run reads.
   */
  protected fixedSetting(
    _compiled: Readonly<Settings>,
    _now: Readonly<Settings>,
  ): string | undefined {
    return undefined
  }

  /** Checks the settings. errors: `config.invalid` for values that the update rule does not allow. */
  protected abstract check(settings: Settings): void

  /** errors: `graph.misuse` for a parameter that was divided over ranks since it was listed: its part would never be updated. */
  #refuseDivided(): void {
    const all = this.#parameters
    const divided = all.find(({ dividedBy }) => dividedBy)
    if (!divided) return
    throw new TabringError(
      'graph.misuse',
      `optimizer.step: ${divided.dividedBy} has divided "${divided.name}" over ranks since ${this.constructor.name} was created. Create the optimizer afterwards.`,
    )
  }

  /** Runs of the step being compiled are refused while the groups are others, or their settings wrong or those of another step. */
  #refuseChanges(trace: Trace): void {
    const known = this.paramGroups.map((group) => ({
      group,
      compiled: { ...group, params: [...group.params] },
      replicated: group.params.map(({ replicatedBy }) => replicatedBy),
    }))
    const counts = known.map(({ group }) => group.params.length)
    trace.refusals.push(() => {
      const isKept = ({ group, compiled }: (typeof known)[number], at: number) =>
        this.paramGroups[at] === group && isSameList(group.params, compiled.params)
      if (this.paramGroups?.length !== known.length || !known.every(isKept)) {
        throw new TabringError(
          'graph.misuse',
          `run: the step was compiled with groups of ${formatShape(counts)} parameters of ${this.constructor.name}, and its groups or their parameters have changed. Compile the step again: it updates what was there.`,
        )
      }
      for (const { group, compiled, replicated } of known) {
        for (const [at, was] of replicated.entries()) refuseReplicated(group.params[at], was)
        checkGroup(this.constructor.name, group, this.defaults)
        this.#checkSettings(group)
        this.#refuseOtherStep(compiled, group)
      }
    })
  }

  #refuseOtherStep(compiled: Readonly<Settings>, group: ParamGroup<Settings>): void {
    const name = this.fixedSetting(compiled, group)
    if (name === undefined) return
    const of = (settings: Readonly<Settings>) => String(Reflect.get(settings, name))
    throw new TabringError(
      'graph.misuse',
      `run: the step was compiled with ${name} = ${of(compiled)} of ${this.constructor.name}, which is now ${of(group)}. Compile the step again: this setting decides its kernels and states.`,
    )
  }

  #checkSettings(settings: Settings): void {
    checkKinds(this.constructor.name, settings, this.defaults)
    this.check(settings)
  }

  #makeGroup(group: Partial<Settings> & { readonly params: readonly Parameter[] }) {
    checkGroup(this.constructor.name, group, this.defaults)
    const made = overlay<Settings>(this.defaults, group) as ParamGroup<Settings>
    this.#checkSettings(made)
    return made
  }

  #cohortsOf(group: ParamGroup<Settings>, trace: Trace): Cohort[] {
    const exchange = group.params[0]?.exchange
    if (group.params.some((parameter) => parameter.exchange !== exchange)) {
      throw new TabringError(
        'graph.misuse',
        'optimizer.step: only some parameters of a group are wrapped for data parallel training. Wrap the whole model.',
      )
    }
    trace.exchange = exchange
    const known = this.#cohorts.get(group) ?? []
    const made = this.#making.get(trace)?.get(group) ?? []
    const cohorts = [...known, ...made]
    const placed = new Set(cohorts.flatMap(({ parameters }) => parameters))
    const ordered = group.params
      .filter((parameter) => trace.gradients.has(parameter) && !placed.has(parameter))
      .sort((a, b) => this.#placeOf(a, trace) - this.#placeOf(b, trace))
    const isTrained = ({ parameters }: Cohort) =>
      parameters.some((parameter) => trace.gradients.has(parameter))
    if (ordered.length === 0) return cohorts.filter(isTrained)
    // Parameters that get their first gradient in a later program (unfrozen ones) have separate buckets and a separate count, as have
    // those that joined late in a run whose state was loaded.
    const isShared = exchange?.exchangesGradients === true
    const isReplicated = group.params.some(({ replicatedBy }) => replicatedBy)
    const cap = isShared
      ? exchange.settings.bucketCapBytes
      : isReplicated
        ? replicaBucketBytes
        : Number.POSITIVE_INFINITY
    const firstCap = isShared ? exchange.settings.firstBucketCapBytes : cap
    const stepsOf = (parameter: Parameter) => this.#loaded.get(parameter)?.steps ?? 0
    const deviceOf = (parameter: Parameter) => parameter.device ?? trace.device
    const kinds = new Map<string, Parameter[]>()
    for (const parameter of ordered) {
      const { sharedBy } = parameter
      const ranks = sharedBy ? trace.syncPoints?.numberOf(sharedBy) : ''
      const kind = `${stepsOf(parameter)} ${formatDevice(deviceOf(parameter))} ${ranks}`
      kinds.set(kind, [...(kinds.get(kind) ?? []), parameter])
    }
    for (const parameters of kinds.values()) {
      const device = deviceOf(parameters[0])
      const buckets = layOutBuckets(parameters, cap, this.#bucketCount, firstCap, device)
      this.#bucketCount += buckets.length
      this.#keepWhenTraced(group, trace, new Cohort(buckets, stepsOf(parameters[0]), device))
    }
    return this.#cohortsOf(group, trace)
  }

  /** Where a parameter stands in the order of exchange: as its gradient is complete, or as ranks have settled. */
  #placeOf(parameter: Parameter, trace: Trace): number {
    const used = trace.settled?.used.get(this)
    return used ? used.indexOf(parameter) : idOfGradient(trace, parameter)
  }

  /** Keeps a cohort for this trace, and for later ones when the traced function has returned. */
  #keepWhenTraced(group: ParamGroup<Settings>, trace: Trace, cohort: Cohort): void {
    let byGroup = this.#making.get(trace)
    if (!byGroup) {
      byGroup = new Map()
      this.#making.set(trace, byGroup)
    }
    const made = [...(byGroup.get(group) ?? []), cohort]
    byGroup.set(group, made)
    trace.whenTraced.push(() => {
      this.#cohorts.set(group, [...(this.#cohorts.get(group) ?? []), cohort])
      this.#making.delete(trace)
    })
  }

  /** The cohort's control; where updates may be left out, behind the kernel that counts them. */
  #controlOf(group: ParamGroup<Settings>, cohort: Cohort, trace: Trace) {
    const known = trace.controls.get(cohort.buckets[0])
    const control = known && { ...known, value: trace.jointOn(known.value, cohort.device) }
    if (!control?.maySkip) return { value: control?.value, isSettled: false }
    const counter = new GraphValue(tensorType([1]), {
      kind: 'pool',
      pool: cohort.leftOut,
      start: 0,
    })
    const [value] = trace.emitJoint(
      settle,
      [control.value, counter],
      this.settleAttrs(trace, group, () => cohort.steps),
    )
    return { value, isSettled: true }
  }

  #sliceOf(
    bucket: Bucket,
    cohort: Cohort,
    trace: Trace,
    control: { value: GraphValue | undefined; isSettled: boolean },
  ): Slice {
    const { start, end } = bucket.ownSlice(trace.exchange)
    const length = end - start
    const part = (pool: Pool, from: number) =>
      new GraphValue(tensorType([length]), { kind: 'pool', pool, start: from })
    return {
      bucket,
      length,
      parameter: part(bucket.parameterPool, start),
      gradient: part(bucket.gradientPool, start),
      control: control.value,
      isSettled: control.isSettled,
      steps: () => cohort.steps,
      state: (name, initial = 0) => {
        invariant(Object.hasOwn(this.stateNames, name), () => `${name} is not among stateNames`)
        this.#initial.set(name, initial)
        let pool = bucket.state.get(name)
        if (!pool) {
          pool = bucket.newPool(name, length)
          bucket.state.set(name, pool)
          this.#fillState(bucket, name, pool, start)
        }
        return part(pool, 0)
      },
    }
  }

  /** Writes what was loaded, and the initial value elsewhere, into a state's pool, which holds the bucket from `sliceStart` on. */
  #fillState(bucket: Bucket, name: string, pool: Pool, sliceStart?: number): void {
    const exchange = bucket.parameters[0].exchange
    const from = sliceStart ?? bucket.ownSlice(exchange).start
    const initial = this.#initial.get(name) ?? 0
    const isLoaded = bucket.parameters.some((parameter) => this.#loaded.has(parameter))
    if (initial === 0 && !isLoaded && !pool.isFilled) return
    const contents = new Float32Array(pool.elements).fill(initial)
    bucket.parameters.forEach((parameter, i) => {
      const tensor = this.#loaded.get(parameter)?.tensors[name]
      if (!tensor) return
      const first = Math.max(bucket.starts[i], from)
      const end = Math.min(bucket.starts[i] + parameter.count, from + pool.elements)
      if (end <= first) return
      const data = tensor.data.subarray(first - bucket.starts[i], end - bucket.starts[i])
      contents.set(data, first - from)
    })
    pool.write(contents)
  }

  /** What the updates made so far have left. */
  async #readState(): Promise<Map<Parameter, LoadedState>> {
    const entries = new Map<Parameter, LoadedState>()
    for (const cohort of this.cohorts) {
      const steps = await cohort.updates()
      for (const bucket of cohort.buckets) {
        const tensors = bucket.parameters.map((): Record<string, StateTensor> => ({}))
        for (const [name, pool] of bucket.state) {
          const contents = await wholeState(bucket, pool)
          bucket.parameters.forEach(({ shape, count }, i) => {
            const data = contents.slice(bucket.starts[i], bucket.starts[i] + count)
            tensors[i][name] = { shape, data }
          })
        }
        bucket.parameters.forEach((parameter, i) => {
          entries.set(parameter, { steps, tensors: tensors[i] })
        })
      }
    }
    return entries
  }
}

/** What a micro-step, or the step that ends an accumulation, does with a bucket's own gradients. */
function completionOf(bucket: Bucket, trace: Trace): GraphNode[] {
  const { accumulation, scalars } = trace
  if (!accumulation) return []
  const type = tensorType([bucket.elements])
  const total = new GraphValue(type, { kind: 'pool', pool: bucket.accumulatedPool, start: 0 })
  const grad = new GraphValue(type, { kind: 'pool', pool: bucket.gradientPool, start: 0 })
  const [op, settings] =
    accumulation.part === 'add'
      ? [accumulate, {}]
      : [takeAccumulated, { factor: scalars.add(() => trace.weighing?.takeFactor ?? 1) }]
  const attrs: UpdateAttrs = { settings, start: 0, length: bucket.elements }
  return [emitNode(op as Op, [total, grad], attrs)]
}

function idOfGradient(trace: Trace, parameter: Parameter): number {
  const gradient = trace.gradients.get(parameter)
  invariant(gradient, () => `"${clipped(parameter.name)}" has no gradient`)
  return gradient.node?.id ?? 0
}

const gradientMissing = (parameter: Parameter) =>
  new TabringError(
    'graph.misuse',
    `optimizer.step: "${clipped(parameter.name)}" has no gradient, but parameters that are updated together with it have one. To freeze some of them, create a new optimizer and load the state of this one into it: loadStateDict(await optimizer.stateDict()).`,
  )

/** errors: `graph.misuse` for a parameter that is replicated since the step was compiled. */
function refuseReplicated(
  { title, replicatedBy }: Parameter,
  was: Parameter['replicatedBy'],
): void {
  if (replicatedBy === was) return
  throw new TabringError(
    'graph.misuse',
    `run: the step was compiled before replicate had ranks share ${title}. Compile the step again: it does not sum their gradients.`,
  )
}

countArguments(Optimizer)
refusePythonNames(Optimizer, { param_groups: 'optimizer.paramGroups' })
