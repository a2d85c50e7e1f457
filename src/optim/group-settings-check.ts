import type { Parameter } from '../graph/trace/parameter.ts'
import {
  type ConsistentContents,
  type ConsistentNumbers,
  contentsOf,
  hashOf,
  type NamedNumber,
} from '../graph/trace/settings-check.ts'
import { markOf } from '../graph/trace/stored-tensor.ts'
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

/**
 * Weights that ranks have in common, and the state that was loaded last, whose hash `loadedState` gives: of a change on some ranks alone each
 * would bring its slice to the others.
 *
 * Whole weights are read where they were assigned on some ranks; of parts and slices, which differ, it goes by what was loaded.
 */
export function consistentContents(
  of: string,
  parameters: readonly Parameter[],
  loadedState: () => number,
): ConsistentContents {
  const commonWith = (group: object | undefined) =>
    parameters.filter(({ exchange, device, sharedBy, replicatedBy, sameOn }) =>
      group
        ? [sharedBy, replicatedBy, sameOn].some((ranks) => ranks === group)
        : exchange && device?.rank === undefined,
    )
  const shown = (mark: number) => (mark ? `(hash ${mark.toString(16)})` : 'as at the start')
  return {
    mark(group) {
      const common = commonWith(group)
      if (common.length === 0) return 0
      return hashOf([loadedState(), ...common.map(({ assigned }) => assigned)])
    },
    async read(group) {
      const common = commonWith(group)
      const weights = common.map(async (one) => {
        const mark = group && one.sharedBy === group ? one.assigned : markOf(await one.readHome())
        return `${contentsOf}${one.title} ${shown(mark)}`
      })
      const state = `${contentsOf}the loaded state of ${of} ${shown(loadedState())}`
      return common.length === 0 ? [] : [...(await Promise.all(weights)), state]
    },
    agree(group) {
      for (const one of commonWith(group)) if (!one.sharedBy) one.assigned = 0
    },
  }
}

/** Hash of the tensors of a loaded state; 0 without any. */
export const markOfState = (tensors: readonly Float32Array<ArrayBuffer>[]): number =>
  tensors.length > 0 ? hashOf(tensors.map(markOf)) || 1 : 0
