import * as v from 'valibot'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import { recall, remember } from '../parts/tab-memory.ts'
import { type KeptRun, maxRuns, runsKey } from '../state/kept-runs.ts'

/**
 * The runs that a tab remembers over a reload: one text a run, and a list of their ids.
 *
 * What cannot be read is passed over, and what does not fit gives way, the oldest first.
 */

const keyOf = (id: string) => `tabring-run-${id}`

/** JSON has no NaN: a loss that was none is null. */
const numbers = v.array(
  v.pipe(
    v.nullable(v.number()),
    v.transform((value) => value ?? Number.NaN),
  ),
)
const storedSchema = v.object({
  version: v.literal(4),
  id: v.pipe(v.string(), v.maxLength(80)),
  name: v.pipe(v.string(), v.maxLength(80)),
  startedAtMs: v.number(),
  config: v.unknown(),
  worldSize: v.number(),
  rank: v.number(),
  ending: v.picklist(['finished', 'stopped', 'failed']),
  points: v.object({
    stretch: v.number(),
    steps: numbers,
    losses: numbers,
    metrics: numbers,
    samples: numbers,
    seconds: numbers,
  }),
  accuracy: v.object({ steps: numbers, values: numbers, losses: numbers }),
  steps: v.number(),
  seconds: v.number(),
  samplesPerSec: v.nullable(v.number()),
  loss: v.nullable(v.number()),
  trainValue: v.nullable(v.number()),
  heldOutLoss: v.nullable(v.number()),
  finalValue: v.nullable(v.number()),
  isShown: v.boolean(),
  slot: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
})

/** Where texts are kept; the tab's session storage but for tests. */
export interface TextMemory {
  recall(key: string): string
  /** False where it does not fit, or nothing is kept at all. An empty text takes no place. */
  remember(key: string, text: string): boolean
}

const tabMemory: TextMemory = { recall, remember }

export function recallRuns(experiments: Experiments, memory = tabMemory): KeptRun[] {
  return idsOf(memory).flatMap((id) => {
    const run = readRun(experiments, memory.recall(keyOf(id)))
    return run && run.id === id ? [run] : []
  })
}

/** Keeps what is new or changed against `before`. Runs that were there, and are not among `runs`, are forgotten. */
export function rememberRuns(
  runs: readonly KeptRun[],
  before: readonly KeptRun[],
  memory: TextMemory = tabMemory,
): void {
  const ids = new Set(runs.map(({ id }) => id))
  for (const id of idsOf(memory)) if (!ids.has(id)) memory.remember(keyOf(id), '')
  let kept = [...runs].slice(-maxRuns)
  for (const run of [...kept]) {
    if (before.includes(run)) continue
    while (kept.includes(run) && !memory.remember(keyOf(run.id), writeRun(run))) {
      memory.remember(keyOf(kept[0].id), '')
      kept = kept.slice(1)
    }
  }
  memory.remember(runsKey, JSON.stringify(kept.map(({ id }) => id)))
}

function idsOf(memory: TextMemory): string[] {
  const ids = parsed(memory.recall(runsKey))
  return Array.isArray(ids)
    ? ids.filter((id): id is string => typeof id === 'string').slice(-maxRuns)
    : []
}

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Six digits are more than a line of pixels shows. */
const short = (values: Float64Array) => Array.from(values, (value) => Number(value.toPrecision(6)))

function writeRun(run: KeptRun): string {
  const { points, accuracy } = run
  return JSON.stringify({
    version: 4,
    ...run,
    points: {
      stretch: points.stretch,
      steps: [...points.steps],
      losses: short(points.losses),
      metrics: short(points.metrics),
      samples: [...points.samples],
      seconds: short(points.seconds),
    },
    accuracy: {
      steps: [...accuracy.steps],
      values: short(accuracy.values),
      losses: short(accuracy.losses),
    },
  })
}

function readRun({ parseTrainConfig }: Experiments, text: string): KeptRun | undefined {
  const { success, output } = v.safeParse(storedSchema, parsed(text))
  if (!success) return undefined
  const { version: _, points, accuracy, config, ...rest } = output
  const { stretch, steps, losses, metrics, samples, seconds } = points
  const isEven = ({ length }: number[], ...lists: number[][]) =>
    lists.every((list) => list.length === length)
  if (!isEven(steps, losses, metrics, samples, seconds)) return undefined
  if (!isEven(accuracy.steps, accuracy.values, accuracy.losses)) return undefined
  try {
    return {
      ...rest,
      // Of an earlier version of the page: what it did not have is as by default.
      config: parseTrainConfig(config),
      samplesPerSec: rest.samplesPerSec ?? Number.NaN,
      loss: rest.loss ?? Number.NaN,
      trainValue: rest.trainValue ?? Number.NaN,
      heldOutLoss: rest.heldOutLoss ?? Number.NaN,
      finalValue: rest.finalValue ?? Number.NaN,
      points: {
        stretch,
        steps: Float64Array.from(steps),
        losses: Float64Array.from(losses),
        metrics: Float64Array.from(metrics),
        samples: Float64Array.from(samples),
        seconds: Float64Array.from(seconds),
      },
      accuracy: {
        steps: Float64Array.from(accuracy.steps),
        values: Float64Array.from(accuracy.values),
        losses: Float64Array.from(accuracy.losses),
      },
    }
  } catch {
    return undefined
  }
}
