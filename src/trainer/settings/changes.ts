import * as v from 'valibot'
import type { SettingRow } from './row.ts'
import { rows } from './table.ts'

/** A setting that ranks may change while a run trains. */
export type LiveKey = {
  [Key in keyof typeof rows]: (typeof rows)[Key] extends { readonly isLive: true } ? Key : never
}[keyof typeof rows]

export const liveKeys = Object.entries<SettingRow>(rows).flatMap(([key, { isLive }]) =>
  isLive ? [key as LiveKey] : [],
)

/** The new value of a setting. */
export const valueSchemas = Object.fromEntries(
  liveKeys.map((key) => [key, v.nonOptional(rows[key].schema)]),
) as unknown as Readonly<Record<LiveKey, v.GenericSchema<unknown, number>>>

/** A setting that has another value from `step` on, the first step with it. `from`: the value before. */
const changeSchema = v.strictObject({
  step: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  key: v.picklist(liveKeys),
  from: v.number(),
  to: v.number(),
})
export type Change = v.InferOutput<typeof changeSchema>

/** A run remembers the newest ones: far more than between two kept states. */
export const maxChanges = 256

/** Changes of a run, in the order of their steps. */
export const changesSchema = v.pipe(v.array(changeSchema), v.maxLength(maxChanges))

/** Returns the value of a setting in a step; `standard` where the run does not change it. */
export function valueAt(
  changes: readonly Change[],
  key: LiveKey,
  step: number,
  standard: number,
): number {
  const own = changes.filter((one) => one.key === key)
  return own.findLast((one) => one.step <= step)?.to ?? own[0]?.from ?? standard
}
