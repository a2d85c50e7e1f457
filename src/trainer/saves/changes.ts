import * as v from 'valibot'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { inWords } from '../../util/kind-of.ts'
import {
  type Change,
  changesSchema,
  decidesBits,
  type LiveKey,
  liveKeys,
  maxChanges,
  valueAt,
  valueSchemas,
  withChange,
} from '../settings/changes.ts'
import type { TrainConfig } from '../settings/config.ts'
import { type DemoMeta, learningRateOf } from '../settings/demo-meta.ts'
import type { RunParts } from './kept-states.ts'

const proposalSchema = v.partial(v.strictObject(valueSchemas))
/** New values that a rank asks for. */
type Proposal = Partial<Record<LiveKey, number>>
const isProposal = (received: unknown): received is Proposal => v.is(proposalSchema, received)

/** `by`: the rank that asked, where this group has agreed on it. */
type OnChanged = (change: Change, by?: number) => void

/** The changes of a run that its ranks have agreed on. */
export interface Agreed {
  /** Agreements so far: of two lists the one with more is the newer. */
  readonly version: number
  /** In the order of their steps. */
  readonly changes: readonly Change[]
}

/**
 * The settings that ranks change while a run trains, on one rank: asked for on any of them, agreed on behind a step by all, and held from the
 * next step on.
 *
 * What is agreed is a list of steps and values, so that steps that are done again have the same settings again.
 */
export class Changes {
  readonly #config: TrainConfig
  readonly #initial: Readonly<Record<LiveKey, number>>
  /** Of the settings, for a run that is computed again. */
  readonly #given: readonly Change[]
  readonly #onChanged: OnChanged
  /** On this rank, until all have heard of it. */
  #asked: Proposal = {}
  #agreed: Agreed
  /** Values of all steps from `first` up to `end`, among them the one asked for last. */
  #held: { first: number; end: number; values: Readonly<Record<LiveKey, number>> } | undefined

  constructor(config: TrainConfig, meta: DemoMeta, onChanged: OnChanged) {
    const { maxStepsPerSec = 0, changes = '[]' } = config
    this.#config = config
    this.#initial = { lr: learningRateOf(config, meta), maxStepsPerSec }
    this.#given = changesIn(changes)
    this.#agreed = { version: 0, changes: this.#given }
    this.#onChanged = onChanged
  }

  /** True if this rank asks for some. */
  get isAsked(): boolean {
    return Object.keys(this.#asked).length > 0
  }

  /** Report to the ranks of another group. Without an agreement all have the list of the settings. */
  get brought(): Agreed {
    const { version, changes } = this.#agreed
    return { version, changes: version === 0 ? [] : [...changes] }
  }

  /** Asks for a new value. errors: `config.invalid`, naming the setting: one that needs a new run or has changed too often, or a value that it cannot have. */
  ask(key: string, value: unknown): void {
    const live = liveKeys.find((one) => one === key)
    if (!live) {
      throw new TabringError(
        'config.invalid',
        `change: ${inWords(key)} cannot change while a run trains, but ${liveKeys.join(' and ')} can. Start a new run with it.`,
      )
    }
    const result = v.safeParse(valueSchemas[live], value)
    if (!result.success) {
      const [issue] = result.issues
      throw new TabringError(
        'config.invalid',
        `change: ${live}: expected ${issue.expected ?? issue.message}, got ${issue.received}. Choose another value.`,
      )
    }
    const times = this.#agreed.changes.filter(({ key }) => key === live).length
    if (times >= maxChanges) {
      throw new TabringError(
        'config.invalid',
        `change: ${live} has changed ${times} times in this run, and may no more. Save the run, and resume it with another value.`,
      )
    }
    this.#asked = { ...this.#asked, [live]: result.output }
  }

  /** Agrees with the other ranks on what holds from the step after `step` on. All ranks call it between the same steps. errors: the group's. */
  async agree(group: ProcessGroup, step: number): Promise<void> {
    const own = this.#asked
    const received = await gatherJson('the changed settings', group, own, isProposal)
    const isOpen = (key: LiveKey) => this.#asked[key] !== own[key]
    this.#asked = Object.fromEntries(liveKeys.filter(isOpen).map((key) => [key, this.#asked[key]]))
    // Of several ranks the last one's value counts.
    const asked: Proposal = Object.assign({}, ...received)
    const next = step + 1
    let { version, changes } = this.#agreed
    for (const key of liveKeys) {
      const to = asked[key]
      const isLast = !changes.some((one) => one.key === key && one.step > next)
      if (to === undefined || (isLast && to === this.at(key, next))) continue
      changes = withChange(changes, { step: next, key, from: this.at(key, step), to })
      version = this.#agreed.version + 1
    }
    this.take({ version, changes }, (key) =>
      received.findLastIndex((one) => one[key] !== undefined),
    )
  }

  /** Takes the list of all ranks, and reports values that are new here. */
  take(agreed: Agreed, askedBy?: (key: LiveKey) => number): void {
    const before = this.#agreed.changes
    const { version } = agreed
    const changes = version === 0 ? this.#given : agreed.changes
    this.#agreed = { version, changes }
    this.#held = undefined
    const found = changes.filter((change) => !has(before, change))
    const gone = liveKeys.flatMap((key): Change[] => {
      const first = before.find((one) => one.key === key && !has(changes, one))
      if (!first) return []
      const isReplaced = found.some(
        (one) => one.key === key && (!decidesBits(key) || one.step <= first.step),
      )
      if (isReplaced) return []
      return [{ ...first, from: first.to, to: this.at(key, first.step) }]
    })
    for (const change of gone) this.#onChanged(change)
    for (const change of found) this.#onChanged(change, askedBy?.(change.key))
  }

  /** Returns the settings of a run that begins with this step. */
  configAt(step: number): TrainConfig {
    const { changes: _, ...config } = this.#config
    const changed = new Set(this.#agreed.changes.map(({ key }) => key))
    return {
      ...config,
      ...Object.fromEntries([...changed].map((key) => [key, this.at(key, step)])),
    }
  }

  /** Puts the rate of a step into an optimizer. */
  useRate({ paramGroups }: RunParts['optimizer'], step: number): void {
    for (const group of paramGroups) group.lr = this.at('lr', step)
  }

  /** Returns the value of a setting in a step. */
  at(key: LiveKey, step: number): number {
    if (!this.#held || step < this.#held.first || step >= this.#held.end) {
      const { changes } = this.#agreed
      const steps = changes.map((one) => one.step)
      const entries = liveKeys.map((one) => [one, valueAt(changes, one, step, this.#initial[one])])
      this.#held = {
        first: steps.findLast((one) => one <= step) ?? 0,
        end: steps.find((one) => one > step) ?? Number.POSITIVE_INFINITY,
        values: Object.fromEntries(entries),
      }
    }
    return this.#held.values[key]
  }
}

const has = (changes: readonly Change[], { step, key, to }: Change): boolean =>
  changes.some((one) => one.step === step && one.key === key && one.to === to)

/** errors: `config.invalid`. */
function changesIn(text: string): readonly Change[] {
  try {
    return v.parse(changesSchema, JSON.parse(text))
  } catch (cause) {
    throw new TabringError(
      'config.invalid',
      'settings: changes: expected the list of a run log, as JSON. Correct it and start again.',
      { cause },
    )
  }
}
