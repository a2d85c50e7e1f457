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
import type { LoadedState } from './loaded-state.ts'
import type { CommonSettings, ParamGroup } from './settings.ts'

type Floats = Float32Array<ArrayBuffer>

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

/** State of an optimizer, as ranks compare it. */
interface SharedState {
  /** Hashes of what was loaded since ranks agreed. */
  marks(): ReadonlyMap<Parameter, number>
  agree(marks: ReadonlyMap<Parameter, number>): void
  /** Reads it as it is; of data-parallel ranks, from all of them. */
  read(): Promise<ReadonlyMap<Parameter, LoadedState>>
}

/**
 * Weights that ranks have in common, and their state: of a change on some ranks alone each would bring its slice to the others.
 *
 * What the ranks hold is read where something was assigned or loaded on some of them. Of what is divided over them, a rank that has loaded it goes by
 * the whole that it was given, and the others by what all hold together.
 */
export function consistentContents(
  of: string,
  parameters: readonly Parameter[],
  state: SharedState,
): ConsistentContents {
  const commonWith = (group: object | undefined) =>
    parameters.filter(({ exchange, device, sharedBy, replicatedBy, sameOn }) =>
      group
        ? [sharedBy, replicatedBy, sameOn].some((ranks) => ranks === group)
        : exchange && device?.rank === undefined,
    )
  const line = (what: string, mark: number) => `${contentsOf}${what} (hash ${mark.toString(16)})`
  const assigned = new Map<Parameter, number>()
  let loaded = state.marks()
  return {
    mark(group) {
      const common = commonWith(group)
      loaded = state.marks()
      for (const one of common) assigned.set(one, one.assigned)
      const marks = common.flatMap((one) => [one.assigned, loaded.get(one) ?? 0])
      return marks.some(Boolean) ? hashOf(marks) : 0
    },
    async read(group) {
      const common = commonWith(group)
      if (common.length === 0) return []
      const lines: string[] = []
      const isDivided = (one: Parameter) => group !== undefined && one.sharedBy === group
      const wholeOf = (one: Parameter, own: Floats) => (isDivided(one) ? one.wholeOf(own) : own)
      for (const one of common) {
        const held = markOf(await wholeOf(one, await one.readHome()))
        lines.push(line(one.title, (isDivided(one) && one.assigned) || held))
      }
      // Data-parallel ranks gather it over all of them, of which a group may be a part.
      const isSliced = common.some(({ exchange }) => exchange)
      const states = group && isSliced ? undefined : await state.read()
      for (const one of common) {
        const own = states?.get(one)
        const tensors: Record<string, { data: Floats }> = {}
        for (const [name, { data }] of Object.entries(own?.tensors ?? {}))
          tensors[name] = { data: await wholeOf(one, data) }
        // The step under way is counted already.
        const held = markOfState(own && own.steps > 1 ? tensors : {})
        const mark = (isSliced || isDivided(one)) && state.marks().get(one)
        lines.push(line(`the state of ${of} for ${one.title}`, mark || held))
      }
      return lines
    },
    agree() {
      // What was loaded meanwhile is for the next step.
      for (const [one, mark] of assigned) if (one.assigned === mark) one.assigned = 0
      state.agree(loaded)
    },
  }
}

/** Hash of the tensors of a parameter's state, which is never 0. */
export const markOfState = (tensors: Readonly<Record<string, { readonly data: Floats }>>): number =>
  hashOf(
    Object.keys(tensors)
      .sort()
      .map((name) => markOf(tensors[name].data)),
  ) || 1
