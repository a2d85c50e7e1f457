import * as v from 'valibot'
import { assignedMemberSchema, limits, rankSchema } from '../../peer/room/messages.ts'
import type { Phase, Run } from '../state/run.ts'

/** Schemas of what a rank shows, which an onlooker does not trust. */

/** Points of each curve in one message: of the whole run, and of what has come since the message before. */
export const maxPoints = { whole: 400, since: 8 } as const

/** Fields of the rank's tab alone, or with more than a picture needs. */
export const left = [
  'logged',
  'sampledSteps',
  'download',
  'saving',
  'saved',
  'slot',
  'isWatched',
] as const satisfies readonly (keyof Run)[]
export type Shown = Omit<Run, (typeof left)[number]>

const flag = v.boolean()
/** NaN too. */
const any = v.custom<number>((value) => typeof value === 'number')
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const text = v.pipe(v.string(), v.maxLength(4000))
const texts = v.array(text)
const ranks = v.pipe(v.array(rankSchema), v.maxLength(limits.membersPerRoom))

const points = v.pipe(v.array(any), v.maxLength(maxPoints.whole + 1))
const series = v.pipe(
  v.strictObject({ xs: points, ys: points }),
  v.check(({ xs, ys }) => xs.length === ys.length, 'a value at each point'),
)

const failure = {
  code: text,
  text,
  ranks: v.optional(ranks),
  leftOut: v.optional(v.picklist(['again', 'barred'])),
}
const result = v.looseObject({
  steps: count,
  samples: count,
  paramHash: text,
  loss: any,
  trainValue: any,
  heldOutLoss: any,
  value: any,
  best: any,
  seconds: any,
})
const ending = v.variant('kind', [
  v.object({ kind: v.literal('finished'), result, bytesSent: any }),
  v.object({ kind: v.picklist(['stopped', 'failed']), ...failure }),
])

const phases = ['connect', 'load', 'broadcast', 'compile', 'train', 'evaluate']

const entries = {
  id: text,
  startedAtMs: any,
  epoch: count,
  rank: rankSchema,
  worldSize: v.pipe(count, v.minValue(1), v.maxValue(limits.membersPerRoom)),
  joins: flag,
  members: v.pipe(v.array(assignedMemberSchema), v.maxLength(limits.membersPerRoom)),
  peers: ranks,
  lost: ranks,
  ways: v.record(v.string(), v.picklist(['webrtc', 'port', 'relay'])),
  config: v.nullable(v.record(v.string(), v.unknown())),
  phase: v.picklist(phases as Phase[]),
  step: count,
  totalSteps: count,
  dataEpoch: count,
  loss: series,
  trainMetric: series,
  accuracy: series,
  heldOutLoss: series,
  globalSamples: series,
  fullestStep: count,
  seconds: series,
  trainingSinceMs: v.nullable(any),
  samples: count,
  bytesSent: any,
  firstBytes: v.nullable(any),
  parts: v.nullable(v.record(v.string(), any)),
  given: v.nullable(v.object({ doneBytes: any, totalBytes: any })),
  held: v.nullable(v.array(v.object({ layers: v.optional(texts), parameterBytes: any }))),
  stateHash: v.nullable(text),
  unlike: v.array(v.object({ step: count, who: texts, text, isLasting: flag })),
  leftOut: v.map(text, v.object({ steps: count, newest: count })),
  assigned: v.nullable(v.object({ samples: v.array(count), step: count })),
  changed: v.record(text, v.object({ step: count, by: v.nullable(text) })),
  recent: v.array(v.object({ atMs: any, step: count, samples: count, globalSamples: count })),
  testingSinceMs: v.nullable(any),
  tests: v.array(v.object({ step: count, ms: any })),
  testedMs: any,
  resumed: v.nullable(v.object({ step: count, holders: v.optional(count), differences: texts })),
  changes: v.array(v.object({ left: texts, came: texts })),
  regrouped: v.nullable(v.object({ step: count, worldSize: count })),
  lostName: v.nullable(text),
  undecided: v.nullable(v.object({ missing: texts, hadMore: flag, step: v.nullable(count) })),
  waits: v.nullable(v.object({ who: text, why: text })),
  heldUp: v.nullable(v.object({ name: v.nullable(text), why: text })),
  broke: v.nullable(v.object({ who: text, what: text })),
  silent: ranks,
  paused: v.nullable(v.object({ step: count, by: ranks })),
  isStepping: flag,
  pausedMs: any,
  isStopping: flag,
  end: v.nullable(ending),
  isPast: flag,
} satisfies Record<keyof Shown, v.GenericSchema>

/** Fields of a run that have changed, with the points of its curves that have come. */
export const changesSchema = v.partial(v.strictObject(entries))
