import * as v from 'valibot'
import { type Change, changesSchema, decidesBits, withChange } from '../settings/changes.ts'
import type { RunEvent } from './run-events.ts'

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))

const hash = v.pipe(v.string(), v.maxLength(16))
/** An id or a name of a rank. */
export const nameSchema = v.pipe(v.string(), v.maxLength(100))
/** The device of a rank, and why it was chosen. */
export const deviceSchema = v.pipe(v.string(), v.maxLength(200))
export const proofSchema = v.object({ samples: hash, parameters: hash, results: hash })
export const maxUnlikeChars = 500
export const unlikeSchema = v.object({
  step: count,
  text: v.pipe(v.string(), v.maxLength(maxUnlikeChars)),
  isLasting: v.boolean(),
})

const runLogSchema = v.object({
  format: v.literal('tabring-run-log-1'),
  /** The settings of the run. */
  config: v.record(v.string(), v.unknown()),
  /** Hashes of the state after that many steps, as far as the tab that kept the log took part. */
  states: v.array(v.tuple([count, hash])),
  /** After `step` the run began or continued with `worldSize` ranks: by rank, whose tab, which share, on which device, which proof. Logs of earlier versions lack that. */
  groups: v.array(
    v.object({
      step: count,
      worldSize: count,
      members: v.optional(
        v.array(
          v.object({
            id: nameSchema,
            name: nameSchema,
            /** Of a full batch, until `deals` says otherwise. */
            samples: count,
            device: v.optional(deviceSchema),
            /** Where it is not the run's. */
            proof: v.optional(proofSchema),
          }),
        ),
      ),
    }),
  ),
  /** After that step ranks took other shares of each batch: samples by rank. */
  deals: v.array(v.object({ step: count, samples: v.array(count) })),
  /** After that step a rank was found to compute on something else than at its group's beginning: what each computes on, by rank. */
  devices: v.optional(v.array(v.object({ step: count, devices: v.array(deviceSchema) })), []),
  /** Settings that decide bits and changed, each from its step on. */
  changes: v.optional(changesSchema, []),
  /** By which bits ranks know those of the run: what the first virtual worker of the first step gives. */
  proof: v.optional(proofSchema),
  /** After that step ranks were found to have other bits; `isLasting`: from then on the run depends on who trains. */
  unlike: v.optional(v.array(unlikeSchema), []),
  /** Null where the run has not reached its end, or not yet: `stepOf` says how far it came. */
  end: v.nullable(v.object({ step: count, paramHash: v.string() })),
})
export type RunLogFile = v.InferOutput<typeof runLogSchema>

/** Events that a log takes. */
export type LoggedEvent =
  | Pick<Extract<RunEvent, { event: 'step' }>, 'event' | 'step' | 'stateHash'>
  | Pick<Extract<RunEvent, { event: 'group' }>, 'event' | 'step' | 'members' | 'proof'>
  | Pick<Extract<RunEvent, { event: 'assigned' }>, 'event' | 'step' | 'samples'>
  | Pick<Extract<RunEvent, { event: 'devices' }>, 'event' | 'step' | 'devices'>
  | ({ event: 'changed' } & Change)
  | Pick<Extract<RunEvent, { event: 'unlike' }>, 'event' | 'step' | 'text' | 'isLasting'>
/** Events that it leaves out. */
type OtherEvent = { readonly event: Exclude<RunEvent['event'], LoggedEvent['event']> }

/**
 * Log of one tab of a run with `exact`: the hash of each step's state, who trained, how the virtual workers were assigned. One tab can compute
 * the run again and compare it step by step (`npm run replay`).
 *
 * Snapshots of the page share it: it only grows, unless it has a bound.
 */
export class RunLog {
  #states: [number, string][] = []
  #groups: RunLogFile['groups'] = []
  #deals: RunLogFile['deals'] = []
  #devices: RunLogFile['devices'] = []
  #unlike: RunLogFile['unlike'] = []
  #changes: readonly Change[] = []
  /** Of the run, once it is known. */
  proof: RunLogFile['proof']
  readonly #max: number
  /** Hashes are kept for steps that this divides. */
  #stride = 1
  #isBegun = false

  /**
   * `max`: hashes, assignments, devices, members of all groups together. Of more hashes it keeps those of every second step, every fourth and so
   * on, of the others the newest. Default: it keeps all.
   */
  constructor(max = Number.POSITIVE_INFINITY) {
    this.#max = max
  }

  /** Takes over what an earlier log of the run has; only the first time. */
  begin(earlier?: RunLogFile): void {
    if (this.#isBegun) return
    this.#isBegun = true
    if (!earlier) return
    this.#groups = [...earlier.groups, ...this.#groups]
    this.#deals = [...earlier.deals, ...this.#deals]
    this.#devices = [...earlier.devices, ...this.#devices]
    this.#states = [...earlier.states, ...this.#states]
    this.#unlike = [...earlier.unlike, ...this.#unlike]
    this.#changes = this.#changes.reduce(withChange<Change>, earlier.changes)
  }

  get unlike(): RunLogFile['unlike'] {
    return this.#unlike
  }

  /** The newest step that it knows to have ended; 0 before the first. */
  get step(): number {
    return stepOf(this.#states)
  }

  add(event: LoggedEvent | OtherEvent): void {
    if (event.event === 'group') {
      const { step, members, proof } = event
      this.proof ??= proof
      this.#groups.push({ step, worldSize: members.length, members: [...members] })
      while (ranksIn(this.#groups) > this.#max && this.#groups.length > 1) this.#groups.shift()
    } else if (event.event === 'assigned') {
      this.#keep(this.#deals, { step: event.step, samples: [...event.samples] })
    } else if (event.event === 'devices') {
      const { step, devices } = event
      // A group has what it begins on.
      if (step) this.#keep(this.#devices, { step, devices: [...devices] }, devices.length)
    } else if (event.event === 'changed') {
      const { step, key, from, to } = event
      if (decidesBits(key)) this.#changes = withChange(this.#changes, { step, key, from, to })
    } else if (event.event === 'unlike') {
      const { step, text, isLasting } = event
      // A rank that joins later reports it again.
      if (this.#unlike.some((one) => one.step === step && one.text === text)) return
      this.#keep(this.#unlike, { step, text, isLasting })
    } else if (event.event === 'step' && event.stateHash !== undefined) {
      this.#addState(event.step - 1, event.stateHash)
    }
  }

  #keep<T>(list: T[], entry: T, size = 1): void {
    list.push(entry)
    if (list.length * size > this.#max) list.shift()
  }

  #addState(step: number, hash: string): void {
    if (step % this.#stride !== 0) return
    this.#states.push([step, hash])
    while (this.#states.length > this.#max) {
      this.#stride *= 2
      this.#states = this.#states.filter(([step]) => step % this.#stride === 0)
    }
  }

  /** Returns the contents of a file. `end`: null where the run has not reached its end. A log since step 0 needs no checkpoint that the run resumed from. */
  file(config: object, end: RunLogFile['end']): RunLogFile {
    const isWhole = this.#states[0]?.[0] === 0
    return {
      format: 'tabring-run-log-1',
      config: { ...config, ...(isWhole && { resume: undefined }) },
      states: [...this.#states],
      groups: [...this.#groups],
      deals: [...this.#deals],
      devices: [...this.#devices],
      ...(this.proof && { proof: this.proof }),
      unlike: [...this.#unlike],
      changes: [...this.#changes],
      end,
    }
  }

  /** The file's text. */
  text(config: object, end: RunLogFile['end']): string {
    return JSON.stringify(this.file(config, end))
  }
}

/** The newest step that these hashes know to have ended; 0 for none. They have the state before it, not the one after. */
export const stepOf = (states: RunLogFile['states']): number => (states.at(-1)?.[0] ?? -1) + 1

const ranksIn = (groups: RunLogFile['groups']): number =>
  groups.reduce((sum, { worldSize }) => sum + worldSize, 0)

/** The log in a file's text; undefined where it is none. */
export function readRunLog(text: string): RunLogFile | undefined {
  try {
    return runLogIn(JSON.parse(text))
  } catch {
    return undefined
  }
}

/** The log that a value of a checkpoint is; undefined where it is none. */
export function runLogIn(value: unknown): RunLogFile | undefined {
  const parsed = v.safeParse(runLogSchema, value)
  return parsed.success ? parsed.output : undefined
}
