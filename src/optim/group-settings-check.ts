import type { ConsistentNumbers, NamedNumber } from '../graph/trace/settings-check.ts'
import type { Cohort } from './cohort.ts'
import type { CommonSettings, ParamGroup } from './settings.ts'

/**
 * Settings of a group that must be equal on all ranks, since each updates its part of the weights alone: compared as the step is compiled its flags and
 * states, in each run its numbers, and where updates depend on how many there were also that.
 */
export function consistentGroup<Settings extends CommonSettings>(
  of: string,
  group: ParamGroup<Settings>,
  settings: readonly string[],
  cohorts: readonly Cohort[],
  countsSteps: boolean,
): ConsistentNumbers {
  const settingOf = (name: string): unknown => Reflect.get(group, name)
  const isFlag = (name: string) => typeof settingOf(name) === 'boolean'
  const states = [...cohorts[0].buckets[0].state.keys()]
  const kept = states.length > 0 ? `keeps ${states.join(' and ')}` : 'keeps no state'
  const flags = settings.filter(isFlag).map((name) => `${name} ${settingOf(name)}`)
  const numbers = () =>
    settings.flatMap((name): NamedNumber[] => {
      const value = settingOf(name)
      return Array.isArray(value)
        ? value.map((one, i): NamedNumber => [`${name}[${i}]`, one])
        : [[name, value]]
    })
  return {
    of,
    fixed: [...flags, kept].join(', '),
    read: () => [
      ...numbers(),
      ...(countsSteps ? cohorts.map(({ steps }): NamedNumber => ['step', steps]) : []),
    ],
    settings: {
      read: () => numbers().map(([, value]) => Number(value)),
      take(values) {
        let at = 0
        for (const name of settings) {
          const old = settingOf(name)
          if (Array.isArray(old))
            Reflect.set(
              group,
              name,
              old.map(() => values[at++]),
            )
          else if (isFlag(name)) at++
          else Reflect.set(group, name, values[at++])
        }
      },
    },
  }
}
