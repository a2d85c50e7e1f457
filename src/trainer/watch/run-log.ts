import * as v from 'valibot'
import type { RunEvent } from './run-events.ts'

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))

const runLogSchema = v.object({
  format: v.literal('tabring-run-log-1'),
  /** The settings of the run. */
  config: v.record(v.string(), v.unknown()),
  /** Hashes of the state after that many steps, as far as the tab that kept the log took part. */
  states: v.array(v.tuple([count, v.pipe(v.string(), v.maxLength(16))])),
  /** After `step` the run continued with `worldSize` ranks. */
  groups: v.array(v.object({ step: count, worldSize: count })),
  /** After that step ranks took other shares of each batch: samples by rank. */
  deals: v.array(v.object({ step: count, samples: v.array(count) })),
  /** Null where the run had not finished. */
  end: v.nullable(v.object({ step: count, paramHash: v.string() })),
})
export type RunLogFile = v.InferOutput<typeof runLogSchema>

type LoggedEvent =
  | Pick<Extract<RunEvent, { event: 'step' }>, 'event' | 'step' | 'stateHash'>
  | Pick<Extract<RunEvent, { event: 'regrouped' }>, 'event' | 'step' | 'worldSize'>
  | Pick<Extract<RunEvent, { event: 'dealt' }>, 'event' | 'step' | 'samples'>

/**
 * What one tab saw of a run with `exact`: the hash of each step's state, who trained, how the virtual workers were dealt. One tab can compute
 * the run again and compare it step by step (`npm run replay`).
 *
 * Snapshots of the page share it: it only grows.
 */
export class RunLog {
  readonly #states: [number, string][] = []
  readonly #groups: RunLogFile['groups'] = []
  readonly #deals: RunLogFile['deals'] = []

  add(event: LoggedEvent): void {
    if (event.event === 'regrouped') {
      this.#groups.push({ step: event.step, worldSize: event.worldSize })
    } else if (event.event === 'dealt') {
      this.#deals.push({ step: event.step, samples: [...event.samples] })
    } else if (event.stateHash !== undefined) {
      this.#states.push([event.step - 1, event.stateHash])
    }
  }

  /** The file's text. `end`: where the run has finished. */
  text(config: object, end: RunLogFile['end']): string {
    const file: RunLogFile = {
      format: 'tabring-run-log-1',
      config: { ...config },
      states: this.#states,
      groups: this.#groups,
      deals: this.#deals,
      end,
    }
    return JSON.stringify(file)
  }
}

export const isLogged = <T extends { readonly event: string }>(
  event: T,
): event is T & LoggedEvent => ['step', 'regrouped', 'dealt'].includes(event.event)

/** The log in a file's text; undefined where it is none. */
export function readRunLog(text: string): RunLogFile | undefined {
  try {
    const parsed = v.safeParse(runLogSchema, JSON.parse(text))
    return parsed.success ? parsed.output : undefined
  } catch {
    return undefined
  }
}
