import * as v from 'valibot'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { inWords } from '../../util/kind-of.ts'
import {
  type Change,
  changesSchema,
  type LiveKey,
  liveKeys,
  maxChanges,
  valueAt,
  valueSchemas,
} from '../settings/changes.ts'
import type { TrainConfig } from '../settings/config.ts'
import { type DemoMeta, learningRateOf } from '../settings/demo-meta.ts'
import type { RunParts } from './kept-states.ts'

const proposalSchema = v.partial(v.strictObject(valueSchemas))
/** New values that a rank asks for. */
type Proposal = Partial<Record<LiveKey, number>>
const isProposal = (received: unknown): received is Proposal => v.is(proposalSchema, received)

/**
 * The settings that ranks change while a run trains, on one rank: asked for on any of them, agreed on behind a step by all, and held from the
 * next step on.
 *
 * What is agreed is a list of steps and values, so that steps that are done again have the same settings again.
 */
export class Changes {
  readonly #config: TrainConfig
  readonly #initial: Readonly<Record<LiveKey, number>>
  readonly #onChanged: (change: Change) => void
  /** On this rank, until all have heard of it. */
  #asked: Proposal = {}
  #agreed: readonly Change[]

  constructor(config: TrainConfig, meta: DemoMeta, onChanged: (change: Change) => void) {
    const { maxStepsPerSec = 0, changes = '[]' } = config
    this.#config = config
    this.#initial = { lr: learningRateOf(config, meta), maxStepsPerSec }
    this.#agreed = changesIn(changes)
    this.#onChanged = onChanged
  }

  /** True if this rank asks for some. */
  get isAsked(): boolean {
    return Object.keys(this.#asked).length > 0
  }

  /** In the order of their steps. */
  get agreed(): readonly Change[] {
    return this.#agreed
  }

  /** Asks for a new value. errors: `config.invalid`, naming the setting: one that needs a new run, or a value that it cannot have. */
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
    const next = { step: step + 1 }
    const found = liveKeys.flatMap((key): Change[] => {
      const [from, to] = [this.at(key, next.step), asked[key]]
      return to === undefined || to === from ? [] : [{ ...next, key, from, to }]
    })
    this.take([...this.#agreed, ...found])
  }

  /** Takes the list of all ranks, and tells of what is new here. */
  take(agreed: readonly Change[]): void {
    const isKnown = (change: Change) =>
      this.#agreed.some(({ step, key }) => step === change.step && key === change.key)
    const found = agreed.filter((change) => !isKnown(change))
    this.#agreed = agreed.slice(-maxChanges)
    for (const change of found) this.#onChanged(change)
  }

  /** Returns the settings of a run that begins with this step. */
  configAt(step: number): TrainConfig {
    const { changes: _, ...config } = this.#config
    const changed = new Set(this.#agreed.map(({ key }) => key))
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
    return valueAt(this.#agreed, key, step, this.#initial[key])
  }
}

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

/** The newest of the lists that ranks bring: a rank may have heard of a change that others had still to hear of. */
export const newestOf = (lists: readonly (readonly Change[])[]): readonly Change[] =>
  lists.reduce((newest, one) => (lastStep(one) > lastStep(newest) ? one : newest))

const lastStep = (changes: readonly Change[]): number => changes.at(-1)?.step ?? 0
