import type { SettingRow } from '../../trainer/settings/row.ts'
import { clipped } from '../../util/clipped.ts'
import { switchNames } from '../../util/switch-table.ts'
import { launcherParameter } from '../../util/switches.ts'
import type { RunResult } from '../../worker/api.ts'
import { lessonParameter } from '../lesson/lesson.ts'
import type { Setting } from './list.ts'

/** Weights leave every useful range within a step of a larger one. */
const maxLr = 100

type LastRun = {
  readonly end: { readonly kind: string; readonly result?: RunResult } | null
} | null

/** Switches that change what ranks send each other. */
const ofLinks: readonly string[] = ['drop', 'delayMs', 'stallRank']

/** What is no setting of a run and does nothing beside others: why. */
const idleOthers: Readonly<Record<string, SettingRow['idle']>> = {
  lanes: { with: 'transport=port', why: 'transport=port has one lane' },
  given: { without: 'demo=playground', why: 'only demo=playground reads it' },
}

/** Why a parameter does nothing beside the others; undefined where it does something. */
function idleBecause(idle: SettingRow['idle'], parameters: URLSearchParams): string | undefined {
  if (!idle) return undefined
  const isIdleWith = 'with' in idle
  const [name, value] = (isIdleWith ? idle.with : idle.without).split('=')
  return parameters.has(name, value) === isIdleWith ? idle.why : undefined
}

/** What a learning rate in a field does not do: a sentence, or none. */
export function uselessRate(text: string): string[] {
  const lr = text.trim() === '' ? Number.NaN : Number(text)
  if (lr === 0) return ['A learning rate of 0 trains nothing.']
  return lr > maxLr ? [`A learning rate of ${clipped(text)} is far above what trains.`] : []
}

/** Returns whether an address names variants of ops: then their list is needed too. */
export const namesVariants = (address: string): boolean => /^[^#]*[?&]variant=[^&#]/.test(address)

/**
 * What an address has that the page does not use: a sentence each. `address`: from its `?` or `#` on. `ranks`: how many
 * would take part. `wrongVariants`: those of kernels, once these are loaded. `run`: the last one; which ops its step has is known at its end.
 */
export function unusedIn(
  address: string,
  settings: readonly Pick<Setting, 'key' | 'idle'>[],
  ranks = 1,
  wrongVariants: (text: string, calls?: readonly string[]) => string[] = () => [],
  run: LastRun = null,
): string[] {
  const { search, hash: fragment } = new URL(address, 'https://page.example')
  const parameters = new URLSearchParams(search)
  const keys = settings.map(({ key }): string => key)
  const idle = {
    ...Object.fromEntries(settings.map(({ key, idle }) => [key, idle])),
    ...idleOthers,
  }
  const known = [...keys, 'given', launcherParameter, lessonParameter, ...switchNames]
  const notes = [...new Set(parameters.keys())].flatMap((name) => {
    const values = parameters.getAll(name)
    if (!known.includes(name)) return [`${clipped(name)} is not a setting`]
    if (values.length > 1) return [`${name} appears ${values.length} times; the first counts`]
    const [value] = values
    if (value === '' && (keys.includes(name) || name === 'variant'))
      return [`${name} is empty; its default is used`]
    if (name === 'variant')
      return wrongVariants(value, Object.keys(run?.end?.result?.record.variants ?? {}))
    const why =
      idleBecause(idle[name], parameters) ||
      (ranks === 1 && ofLinks.includes(name) && 'one rank sends to nobody') ||
      (name === 'stallRank' &&
        Number(value) >= ranks &&
        `ranks are numbered from 0 to ${ranks - 1}`)
    return why ? [`${name} has no effect: ${why}`] : []
  })
  if (/^#./.test(fragment) && !/[#&](room|key)=/.test(fragment))
    notes.push(`${clipped(fragment)} is not a link to a room; this is a new one`)
  return notes.map((note) => `In the address, ${note}.`)
}
