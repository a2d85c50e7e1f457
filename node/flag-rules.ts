import type { Command } from 'commander'
import type { DeviceChoice } from '../src/util/device.ts'
import { TabringError } from '../src/util/errors.ts'
import type { AdapterChoice } from './chromium.ts'

/** A flag, and what must or must not be beside it; each alone, or with one value: `--device cpu`. */
export interface FlagRule {
  readonly flag: string
  readonly needs?: string
  readonly excludes?: string
  /** The end of the error: what to do, and why. */
  readonly remedy?: string
}

/**
 * Hears which flags a command line has, so that contradictions and flags without an effect are refused before anything starts. Call it
 * before the command parses, and `check` behind.
 */
export function flagRules(command: Command, rules: readonly FlagRule[]): { check(): void } {
  const given = new Map<string, unknown>()
  for (const option of command.options)
    command.on(`option:${option.name()}`, (value: unknown) => given.set(option.long!, value))
  const has = (wanted: string) => {
    const [long, value] = wanted.split(' ')
    return given.has(long) && (value === undefined || given.get(long) === value)
  }
  return {
    /** errors: `config.invalid`, for a flag with an empty value, else for the first rule that is broken. */
    check() {
      for (const [flag, value] of given)
        if (value === '')
          throw new TabringError(
            'config.invalid',
            `${flag}: its value is empty. Is a variable of the shell not set? Give it a value, or omit ${flag}.`,
          )
      for (const { flag, needs, excludes, remedy } of rules) {
        if (!has(flag)) continue
        if (needs !== undefined && !has(needs))
          throw new TabringError(
            'config.invalid',
            `${flag}: needs ${needs}. ${remedy ?? `Add it, or omit ${flag}.`}`,
          )
        if (excludes !== undefined && has(excludes))
          throw new TabringError(
            'config.invalid',
            `${flag}: cannot be combined with ${excludes}${remedy ?? '. Pass one of them.'}`,
          )
      }
    },
  }
}

/** The device that a command's flags ask for; undefined where they leave it open. A command that names adapters or WebGPU devices asks for `webgpu`. */
export const deviceOf = ({
  device,
  adapter,
  visibleDevices,
}: {
  readonly device?: DeviceChoice
  readonly adapter?: AdapterChoice
  readonly visibleDevices?: string
}): DeviceChoice | undefined =>
  device ?? (adapter === 'software' || visibleDevices !== undefined ? 'webgpu' : undefined)

/** Of the flags that choose a device, in every command. */
export const deviceRules: readonly FlagRule[] = ['--adapter', '--visible-devices'].flatMap((flag) =>
  ['--device cpu', '--device reference'].map((excludes) => ({
    flag,
    excludes,
    remedy: ', which uses no WebGPU device. Omit one of them.',
  })),
)
