import { map } from '../../kernels/map/map.ts'
import type { Op, ScalarSlot } from '../../kernels/op.ts'
import { syncRanks } from '../../kernels/sync-ranks/sync-ranks.ts'
import { type TransferAttrs, transfer } from '../../kernels/transfer/transfer.ts'
import { clipped } from '../../util/clipped.ts'
import { formatDevice, type PlacedDevice, placedDevice, sameDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkRecord, isNoNan, isNotNegative } from '../../util/options.ts'
import type { GivenInputs, HostData } from '../memory/host-values.ts'
import type { Pool } from '../memory/pool.ts'
import type { Bucket } from './bucket.ts'
import { DividedValues } from './divided.ts'
import type {
  GradientExchange,
  GradientWeighing,
  StepGroups,
  StepSyncPoints,
  Tally,
} from './exchange.ts'
import { type IndexBound, isChecked } from './index-bounds.ts'
import type { Parameter } from './parameter.ts'
import { Region } from './region.ts'
import { SettingsConsistency } from './settings-check.ts'
import type { StageMarks, StageTask } from './stage-marks.ts'
import { emitNode, type GraphNode, type GraphValue, storageOf } from './value.ts'

/** A scalar that runs may give by name. */
export interface NamedScalar {
  readonly slot: ScalarSlot
  value: number
  /** Value in runs that do not give it. */
  initial: number
  /** True if the run under way gave it. */
  wasSet: boolean
  /** For integers: values are below it. */
  readonly limit?: number
  /** Where it says how many samples count: the most that it is asked about. */
  rows?: number
  /** False if nothing computes with what the traced function has made by `stepScalar`. */
  isRead?: boolean
}

/** The step's scalars: one f32 each, written as one block before every run. */
export class ScalarBlock {
  readonly #sources: (() => number)[] = []
  readonly #slots: ScalarSlot[] = []
  readonly #named = new Map<string, NamedScalar>()

  /** Adds a slot whose value `source` gives for each step. */
  add(source: () => number): ScalarSlot {
    const slot = { slot: this.#sources.push(source) - 1 }
    this.#slots[slot.slot] = slot
    return slot
  }

  /** errors: `graph.misuse` for a slot of another trace's block. */
  requireOwn(slot: ScalarSlot): void {
    if (this.#slots[slot.slot] !== slot) throw ofOtherTrace('this step scalar')
    for (const entry of this.#named.values()) if (entry.slot === slot) entry.isRead = true
  }

  get names(): string[] {
    return [...this.#named.keys()]
  }

  /** The slot of that name, made with `initial` at its first use. `isRead`: false for one that is read later, if at all. */
  named(name: string, initial: number, isRead = true): ScalarSlot {
    const known = this.#named.get(name)
    if (known) {
      known.isRead ||= isRead
      return known.slot
    }
    const entry: NamedScalar = {
      slot: this.add(() => entry.value),
      value: initial,
      initial,
      wasSet: false,
      isRead,
    }
    this.#named.set(name, entry)
    return entry.slot
  }

  /** Changes what a named scalar is in runs that do not give it. */
  setInitial(name: string, initial: number): void {
    Object.assign(this.#entry(name), { value: initial, initial })
  }

  /**
   * A named integer as `halves` neighbouring slots of 16 bits each, lowest first, since an f32 holds no more than 24 bits exactly.
   *
   * Returns the entry, whose `slot` is the first.
   */
  integer(name: string, initial: number, halves: number): NamedScalar {
    const known = this.#named.get(name)
    if (known) return known
    const entry: NamedScalar = {
      slot: this.addInteger(() => entry.value, halves),
      value: initial,
      initial,
      wasSet: false,
      limit: Math.min(2 ** (16 * halves), Number.MAX_SAFE_INTEGER + 1),
    }
    this.#named.set(name, entry)
    return entry
  }

  /** The first of `halves` neighbouring slots with 16 bits each of an integer, lowest first. */
  addInteger(source: () => number, halves: number): ScalarSlot {
    const first = { slot: this.#sources.length }
    for (let half = 0; half < halves; half++) {
      this.add(() => Math.floor(source() / 2 ** (16 * half)) % 0x10000)
    }
    return first
  }

  /** Notes that a slot says how many of `rows` samples count. */
  countsAmong({ slot }: ScalarSlot, rows: number): void {
    for (const entry of this.#named.values())
      if (entry.slot.slot === slot) entry.rows = Math.max(entry.rows ?? 0, rows)
  }

  /**
   * Takes what a run gives by name; the others get their initial values. errors: `graph.misuse` for an unknown name, and for a value that the
   * scalar cannot have.
   */
  begin(given: Readonly<Record<string, number>>): void {
    this.check(given)
    for (const entry of this.#named.values()) {
      entry.value = entry.initial
      entry.wasSet = false
    }
    for (const [name, value] of Object.entries(given)) {
      if (value !== undefined) Object.assign(this.#entry(name), { value, wasSet: true })
    }
  }

  /** Takes nothing. errors: those of `begin`. */
  check(given: Readonly<Record<string, number>>): void {
    checkRecord('run', 'scalars', given)
    for (const [name, value] of Object.entries(given))
      if (value !== undefined) this.#check(name, value)
  }

  /** errors: `graph.misuse` for a scalar that nothing reads, unless it is a count that is not given, and where a count is left out that is 0 then. */
  checkUses(given: Readonly<Record<string, number>>): void {
    for (const [name, { rows, initial, isRead }] of this.#named) {
      const refuse = (problem: string) =>
        new TabringError('graph.misuse', `run: step scalar "${clipped(name)}" ${problem}`)
      const isGiven = given[name] !== undefined
      const isCount = name === 'count'
      const remedy = isCount
        ? ', so all rows count. Give the loss { count: sampleCount() }, or leave it out.'
        : '. Compute with what stepScalar returns, or remove the call.'
      if (rows === undefined && isRead === false && (isGiven || !isCount))
        throw refuse(
          `is ${isGiven ? 'given, but' : 'made, and'} nothing in the traced function reads it${remedy}`,
        )
      if (rows !== undefined && initial === 0 && !isGiven)
        throw refuse(
          `says how many samples count, and is not given, so none would. Pass { ${clipped(name)}: batchSizeOf(batch) }, or write sampleCount() in place of stepScalar("${clipped(name)}"): then all count.`,
        )
    }
  }

  #check(name: string, value: number): void {
    const { limit, rows, initial } = this.#entry(name)
    const refuse = (expected: string, remedy: string) =>
      new TabringError(
        'graph.misuse',
        `run: step scalar "${clipped(name)}" must be ${expected}, got ${quoted(value)}. ${remedy}`,
      )
    if (typeof value !== 'number') throw refuse('a number', 'Write { name: number }.')
    if (rows !== undefined && !(Number.isInteger(value) && value >= 0 && value <= rows))
      throw refuse(
        `a whole number of samples from 0 to ${rows}`,
        'Pass batchSizeOf(batch), or leave it out for a full batch.',
      )
    if (limit !== undefined && !(Number.isInteger(value) && value >= 0 && value < limit)) {
      throw refuse(`an integer from 0 to ${limit - 1}`, 'Choose one in that range.')
    }
    if (name !== gradientWeight) {
      if (!isNoNan(value)) throw refuse('a number', 'Write { name: number }.')
      return
    }
    // One of several ranks begins with less; its wrong weight reaches all of them by their exchange, which refuses it.
    const isAlone = initial === 1
    if (isAlone && !isNotNegative(value))
      throw refuse(
        'a finite number of at least 0',
        'Pass the share of the samples that this run has, or leave it out.',
      )
  }

  #entry(name: string): NamedScalar {
    const entry = this.#named.get(name)
    if (entry) return entry
    const remedy =
      name === 'count'
        ? 'Give the loss { count: sampleCount() }'
        : `Call stepScalar("${clipped(name)}")`
    throw new TabringError(
      'graph.misuse',
      `run: no step scalar "${clipped(name)}"; this program has ${clipped([...this.#named.keys()].join(', ')) || 'none'}. ${remedy} in the traced function.`,
    )
  }

  /** Gives the run under way a value that it was not given. */
  assign(name: string, value: number): void {
    this.#entry(name).value = value
  }

  /** Value of a named scalar in the run under way. */
  valueOf(name: string): number {
    return this.#entry(name).value
  }

  /** Returns whether the run under way gave the scalar of that name a value. */
  wasSet(name: string): boolean {
    return this.#named.get(name)?.wasSet ?? false
  }

  /** Value of a slot in the next run. */
  value({ slot }: ScalarSlot): number {
    return this.#sources[slot]()
  }

  /** Value that a slot would have in a run that is given these. */
  valueFor(slot: ScalarSlot, given: Readonly<Record<string, number>>): number {
    const named = [...this.#named].find(([, entry]) => entry.slot.slot === slot.slot)
    return named ? (given[named[0]] ?? named[1].initial) : this.value(slot)
  }

  has(name: string): boolean {
    return this.#named.has(name)
  }

  get size(): number {
    return this.#sources.length
  }

  fill(target: Float32Array): void {
    for (let i = 0; i < this.#sources.length; i++) target[i] = this.#sources[i]()
  }
}

/**
 * Name of the scalar with which `backward` starts: a rank's share of the batch in data-parallel training, otherwise 1.
 *
 * By default, ranks and micro-steps whose loss is a mean over counted samples or class indices are weighted by their counts; others are
 * weighted equally. If given, the weights must add up to 1 over the ranks.
 */
export const gradientWeight = 'gradientWeight'

/** A bucket's part in a step: the gradients that fill it and the nodes that update its parameters. */
export interface BucketUpdate {
  readonly bucket: Bucket
  /** By parameter of the bucket, in its order. */
  readonly gradients: readonly GraphValue[]
  /** Run on the whole bucket as soon as its gradients are there, before ranks exchange them. */
  readonly completion: readonly GraphNode[]
  readonly nodes: readonly GraphNode[]
}

/** A number that ranks must agree on between exchange and update: [value, flag], left in `pool` by `node`. */
export interface JointReduction {
  readonly node: GraphNode
  readonly pool: Pool
  /** How values of ranks join; flags join by the largest. */
  readonly join: 'sum' | 'largest'
}

/** Factor of a bucket's gradients in an update kernel: a device tensor (factor, skip). */
export interface GradientControl {
  readonly value: GraphValue
  /** True if it may say that the update is left out. */
  readonly maySkip: boolean
}

/** A part of a gradient accumulation: micro-steps add, without exchange and update; the last one takes the sum and updates. */
export interface Accumulation {
  readonly part: 'add' | 'take'
  /** Weight of each micro-step's gradient. */
  readonly weight: number
  /** Counts of the update's runs, one for both parts. */
  readonly tally: Tally
}

/** The elements that a loss is a mean over, where they may be less than all of a batch. */
export interface MeanOver {
  /** Samples of the batch. */
  readonly rows: number
  /** How many of the first samples count; null: all. */
  readonly count: ScalarSlot | null
  /** Class numbers of which some do not count: as many for each sample. */
  readonly classes?: { readonly target: GraphValue; readonly ignoreIndex: number }
}

/** A value that every run brings to the host, because the run may have to end with an error for it. */
export interface OutputCheck {
  /** Its name among the outputs, which callers do not see. */
  readonly name: string
  readonly value: GraphValue
  refuse(data: HostData): TabringError | undefined
}

/** A module as a trace sees it: one that trains or evaluates. */
export interface Moded {
  readonly training: boolean
}

/** Agreements of the ranks for one program, over the traces that it took. */
export interface Settled {
  /** By optimizer: the parameters that it updates, on whichever rank they have a gradient, in the order of their exchange. */
  readonly used: Map<object, readonly Parameter[]>
}

/** Buffers' copies on one device. */
export type BufferCopies = ReadonlyMap<GraphValue, GraphValue>

/** Record of one call of a traced function, besides the values that it returned. */
export class Trace {
  readonly scalars = new ScalarBlock()
  readonly gradients = new Map<Parameter, GraphValue>()
  /** Parameters that a `backward` has reached, whatever became of their gradients. */
  readonly reached = new Set<Parameter>()
  /** Tensors other than parameters that asked for a gradient, and the gradients that they got. */
  readonly asked = new Set<GraphValue>()
  readonly tensorGradients = new Map<GraphValue, GraphValue>()
  readonly updates: BucketUpdate[] = []
  /** Settings that must be equal in each step on all ranks that share the updates. */
  readonly consistency = new SettingsConsistency()
  /** Nodes that change an input in place (running statistics): a program keeps them whether or not anything reads their outputs. */
  readonly effects: GraphNode[] = []
  /** The number of samples that count in the part of the batch that is being traced; undefined where that is the batch. */
  countOfPart: ScalarSlot | undefined
  /** True if anything has asked for it. */
  isCountRead = false
  /** True if this rank's function sends to other ranks' functions, which may differ from it: `parallel.send` and `recv`. */
  sendsByHand = false
  /** Nodes over all buckets between exchange and update, in order: norms, clipping, loss scaling. */
  readonly joint: GraphNode[] = []
  readonly reductions: JointReduction[] = []
  readonly controls = new Map<Bucket, GradientControl>()
  /** Nodes after all updates, on whole buckets. */
  readonly after: GraphNode[] = []
  /** Values that runs are refused for. */
  readonly checks: OutputCheck[] = []
  readonly accumulation: Accumulation | undefined
  /** Indices that runs check: those that `bound` has taken. */
  readonly bounds: IndexBound[] = []
  /** Losses that are means over what counts, and those of them that `backward` began from. */
  readonly means = new Map<GraphValue, MeanOver>()
  readonly meansBehind = new Set<MeanOver>()
  /** Values that differ between ranks that divide layers. */
  readonly divided = new DividedValues()
  /** Weights of runs, where one run is not all: there are several ranks, or micro-steps. */
  weighing: GradientWeighing | undefined
  /** The exchange of the data-parallel model that is forwarded. */
  forwarded: GradientExchange<Parameter> | undefined
  /** True if that model trains, and does not evaluate. */
  isForwardedToTrain = false
  /** The groups of ranks of a step without such a model. */
  groups: StepGroups | undefined
  /** Which share of the samples this rank sees in such a step, where its groups divide them. */
  sampleRank: number | undefined
  /** The inputs of the run that has begun, if it has sync points. */
  given: GivenInputs | undefined
  /** How the parameters that are updated are exchanged. */
  exchange: GradientExchange<Parameter> | undefined
  /** Agreements of the ranks for the program that this trace is for; undefined where it is only inspected. */
  readonly settled: Settled | undefined
  /** By parameter's gradient: the losses at which the backward passes began that made it. */
  readonly lossesOf = new WeakMap<GraphValue, readonly GraphValue[]>()
  /** Ids [from, to) of the nodes that each `backward` added. */
  readonly backwards: { readonly from: number; readonly to: number }[] = []
  /** Ids [from, to) of the nodes by which each node's gradient was made. */
  readonly rules: { readonly from: number; readonly to: number; readonly of: GraphNode }[] = []
  /** True if modules trained when the function last asked them. */
  readonly modes = new Map<Moded, boolean>()
  /** Modules that the function went through, and whether each still has the modules, or the parameters, that it had. */
  readonly watched = new Map<object, () => boolean>()
  /** Called when the traced function has returned: what it makes outlives the trace, unless it threw. */
  readonly whenTraced: (() => void)[] = []
  /** Called before each run's scalars are written (an optimizer counts its steps here). */
  readonly beforeStep: (() => void)[] = []
  /** Called before `beforeStep`: each throws where a run may not begin, so that a refused run counts nowhere. */
  readonly refusals: (() => void)[] = []
  /** The innermost checkpointed region of each node that stands in one. */
  readonly regions = new Map<GraphNode, Region>()
  /** The pipeline whose micro-batches this step trains on, if any. */
  stages: StageMarks | undefined
  /** The device of parameters and buffers that were not moved to one. */
  readonly device: PlacedDevice
  /** Where computed values lie; none of those that depend on inputs and constants alone, which are made where they are read. */
  readonly #devices = new WeakMap<GraphValue, PlacedDevice>()
  /** Copies of parameters and buffers, by device. */
  readonly #copies = new Map<GraphValue, Map<string, GraphValue>>()
  #copiesOn: PlacedDevice | undefined
  #bufferCopies: BufferCopies = new Map()
  #region: Region | undefined
  #isAutocast = false

  constructor(
    accumulation?: Accumulation,
    settled?: Settled,
    device: PlacedDevice = placedDevice('webgpu'),
  ) {
    this.accumulation = accumulation
    this.settled = settled
    this.device = device
  }

  /** The exchange of the ranks that wait for this step: that of an update, as far as is known by now. */
  get updatesOver(): GradientExchange<Parameter> | undefined {
    const isUpdate =
      this.accumulation !== undefined || this.isForwardedToTrain || this.backwards.length > 0
    return this.exchange ?? (isUpdate ? this.forwarded : undefined)
  }

  /** The exchange at sync points in forward and backward. */
  get syncPoints(): StepSyncPoints | undefined {
    return this.forwarded ?? this.groups
  }

  /** This rank's number, once a data-parallel, sharded or replicated model is forwarded: which share of the samples it sees. */
  get rank(): number | undefined {
    return this.forwarded?.rank ?? this.sampleRank
  }

  /** The task that a node is part of; undefined outside of a pipeline, and for what joins several. */
  taskOf(node: GraphNode): StageTask | undefined {
    return this.stages?.taskOf(node, this)
  }

  /** The same in words, for errors. */
  taskName(node: GraphNode): string | undefined {
    const task = this.taskOf(node)
    return task && this.stages?.nameOf(task)
  }

  /** Adds a node between exchange and update and returns its outputs. */
  emitJoint<A>(op: Op<A>, inputs: readonly GraphValue[], attrs: A): GraphValue[] {
    const device = inputs.map((value) => this.deviceOf(value)).find((found) => found !== undefined)
    const here = device ? inputs.map((value) => this.jointOn(value, device)) : inputs
    const node = emitNode(op as Op, here, attrs)
    this.#place(node)
    this.joint.push(node)
    return [...node.outputs]
  }

  /** Returns the result of a joint node, on a device. */
  jointOn(value: GraphValue, to: PlacedDevice): GraphValue {
    const from = this.deviceOf(value)
    return from && !sameDevice(from, to)
      ? this.emitJoint(transfer, [value], { from, to })[0]
      : value
  }

  /** Has runs check indices, where the host can. */
  bound(indices: IndexBound): void {
    if (isChecked(indices)) this.bounds.push(indices)
  }

  /** The slot with which `backward` begins. */
  seedSlot(): ScalarSlot {
    const own = this.scalars.named(gradientWeight, 1)
    const { accumulation, scalars } = this
    if (!accumulation) return own
    return scalars.add(() => scalars.value(own) * accumulation.weight)
  }

  /** Adds a node and returns its outputs. What is stored as f16 comes as f32 to ops that do not read it. */
  emit<A>(op: Op<A>, given: readonly GraphValue[], attrs: A): GraphValue[] {
    const read = op === (transfer as Op) ? given : given.map((value) => this.#copied(value))
    const takesShards = op === (syncRanks as Op) || op.isView || op.updates
    refuseDivided(read, op.name, Boolean(takesShards))
    const takesAll = op.takesHalf || op.isView
    const inputs = takesAll ? read : read.map((value) => this.toFloat(value))
    const node = emitNode(op as Op, inputs, attrs)
    this.#place(node)
    this.divided.follow(node)
    if (op.updates?.length) {
      this.effects.push(node)
      // Copies that were made before hold what was there before.
      for (const at of op.updates) this.#copies.delete(inputs[at])
    }
    if (this.#region) this.regions.set(node, this.#region)
    for (let region = this.#region; region; region = region.parent) region.nodes.push(node)
    return [...node.outputs]
  }

  /** The device on which a value lies; undefined for inputs and constants, which are made where they are read. */
  deviceOf(value: GraphValue): PlacedDevice | undefined {
    const { leaf } = value
    if (leaf?.kind === 'parameter') return leaf.parameter.device ?? this.device
    if (leaf?.kind === 'buffer') return leaf.buffer.device ?? this.device
    if (leaf?.kind === 'pool') return leaf.pool.device
    return this.#devices.get(value)
  }

  /** The value on a device: a copy there (of a parameter or buffer one for the step), unless it is there or is made where it is read. */
  transferred(value: GraphValue, to: PlacedDevice): GraphValue {
    const from = this.deviceOf(value)
    if (!from || sameDevice(from, to)) return value
    const moved = () => this.emit(transfer, [value], { from, to })[0]
    if (!value.leaf) return moved()
    const key = formatDevice(to)
    const copies = this.#copies.get(value) ?? new Map<string, GraphValue>()
    this.#copies.set(value, copies)
    const copy = copies.get(key) ?? moved()
    copies.set(key, copy)
    return copy
  }

  /** Copies the contents that these buffers have now, on a device: for `withCopies`, which may run after a change. */
  copiesOf(buffers: readonly GraphValue[], device: PlacedDevice): BufferCopies {
    return new Map(buffers.map((value) => [value, this.transferred(value, device)]))
  }

  /**
   * Calls `fn` with copies of all parameters and buffers on a device. What it changes in buffers that lie elsewhere is lost. `copies`: those of
   * buffers that are there already.
   */
  withCopies<T>(device: PlacedDevice, copies: BufferCopies, fn: () => T): T {
    const outer = [this.#copiesOn, this.#bufferCopies] as const
    this.#copiesOn = device
    this.#bufferCopies = copies
    try {
      return fn()
    } finally {
      ;[this.#copiesOn, this.#bufferCopies] = outer
    }
  }

  /** Returns whether a change of this buffer would be lost: `withCopies` reads a copy. */
  losesChanges(buffer: GraphValue): boolean {
    const device = this.deviceOf(buffer)
    return (
      this.#copiesOn !== undefined && device !== undefined && !sameDevice(device, this.#copiesOn)
    )
  }

  #copied(value: GraphValue): GraphValue {
    const early = this.#bufferCopies.get(value)
    if (early) return early
    const isStored = value.leaf?.kind === 'parameter' || value.leaf?.kind === 'buffer'
    return this.#copiesOn && isStored ? this.transferred(value, this.#copiesOn) : value
  }

  /** Notes where a node's results lie: with its inputs, which `partsOf` checks to be on one device. */
  #place({ op, inputs, outputs, attrs }: GraphNode): void {
    const device =
      op === (transfer as Op)
        ? (attrs as TransferAttrs).to
        : inputs.map((value) => this.deviceOf(value)).find((found) => found !== undefined)
    if (device) for (const value of outputs) this.#devices.set(value, device)
  }

  /** The value as f32 where it is stored as f16. */
  toFloat(value: GraphValue): GraphValue {
    return value.type.dtype === 'f16' ? this.emit(map, [value], { steps: [] })[0] : value
  }

  /** The value as f16. */
  toHalf(value: GraphValue): GraphValue {
    if (value.type.dtype === 'f16') return value
    return this.emit(map, [value], { steps: [], dtype: 'f16' })[0]
  }

  /** True if products take their operands as f16 now. */
  get isAutocast(): boolean {
    return this.#isAutocast
  }

  /** Runs `body` with autocast on or off. */
  withAutocast<T>(isOn: boolean, body: () => T): T {
    const outer = this.#isAutocast
    this.#isAutocast = isOn
    try {
      return body()
    } finally {
      this.#isAutocast = outer
    }
  }

  /** Runs `body` with all nodes that it adds in a new region. */
  inRegion<T>(body: (region: Region) => T): T {
    const outer = this.#region
    this.#region = new Region(outer)
    try {
      return body(this.#region)
    } finally {
      this.#region = outer
    }
  }
}

let active: Trace | undefined

/** The trace of the function being compiled. errors: `graph.misuse` outside of one, naming `what`. */
export function activeTrace(what: string): Trace {
  if (!active) {
    throw new TabringError(
      'graph.misuse',
      `${what}: works only inside a function passed to compile(). Move the call there.`,
    )
  }
  return active
}

export const currentTrace = (): Trace | undefined => active
export const isTracing = (): boolean => active !== undefined

/** The error for what was made while another function was traced, or this one another time. */
export const ofOtherTrace = (what: string): TabringError =>
  new TabringError(
    'graph.misuse',
    `compile: ${what} is from another compile, or an earlier trace of this function. Make it again in the function that uses it, or return its values from the one and declare them as an input of the other.`,
  )

/** Runs `body` with `trace` active. errors: `graph.misuse` when traces nest. */
export function withTrace<T>(trace: Trace, body: () => T): T {
  if (active) {
    throw new TabringError(
      'graph.misuse',
      'compile: called inside a traced function. Compile the inner function outside, or call it directly.',
    )
  }
  active = trace
  try {
    return body()
  } finally {
    active = undefined
  }
}

/** errors: `graph.misuse` for a whole that ranks have divided or are about to, and unless `takesShards` for a part, which a rank would take for the whole. */
function refuseDivided(inputs: readonly GraphValue[], op: string, takesShards: boolean): void {
  for (const value of inputs) {
    const { leaf } = storageOf(value)
    if (leaf?.kind !== 'parameter') continue
    const { title, dividedBy, isShard, sharingBy } = leaf.parameter
    if (sharingBy) {
      throw new TabringError(
        'graph.misuse',
        `${op}: ${sharingBy} has begun to share ${title} among ranks, and has not ended. Await it before the module is used: await ${sharingBy}(…).`,
      )
    }
    if (dividedBy) {
      throw new TabringError(
        'graph.misuse',
        `${op}: ${title} was divided over ranks by ${dividedBy}, but this reads the whole, which is freed. Read the module's property (this.weight) during forward, not a reference from before. Layers that share a weight must be divided by one call of ${dividedBy}.`,
      )
    }
    if (takesShards || !isShard) continue
    throw new TabringError(
      'graph.misuse',
      `${op}: ${title} is sharded over ranks, and whole only in forward of the module that fullyShard was called for. Read it there, or call fullyShard for the module whose method reads it.`,
    )
  }
}
