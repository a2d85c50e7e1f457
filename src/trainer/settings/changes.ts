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

/** Returns whether a setting decides the bits of steps: a run keeps each value of it, of the others the newest. */
export const decidesBits = (key: LiveKey): boolean => (rows[key] as SettingRow).onResume !== 'own'

const changeSchema = v.pipe(
  v.object({
    step: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
    key: v.picklist(liveKeys),
    from: v.number(),
    to: v.number(),
  }),
  v.check(({ key, from, to }) => [from, to].every((value) => v.is(valueSchemas[key], value))),
)
/** A setting that has another value from `step` on, the first step with it. `from`: the value before. */
export type Change = v.InferOutput<typeof changeSchema>

/** So often a setting that decides bits may change in a run. */
export const maxChanges = 256

/** Changes of a run, in the order of their steps. Ranks that ask at once may go a little beyond `maxChanges`. */
export const changesSchema = v.pipe(
  v.array(changeSchema),
  v.maxLength(2 * maxChanges),
  v.readonly(),
)

/**
 * Returns the changes of a run with one more. Later ones of its setting go, since the run went back before them; of a setting that decides no
 * bits the earlier ones, too.
 */
export function withChange<T extends Change>(changes: readonly T[], change: T): readonly T[] {
  const { key, step } = change
  const others = changes.filter((one) => one.key !== key || (decidesBits(key) && one.step < step))
  return [...others, change].sort((a, b) => a.step - b.step)
}

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
