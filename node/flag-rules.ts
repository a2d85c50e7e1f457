import type { Command } from 'commander'
import { TabringError } from '../src/util/errors.ts'

/** A flag, and what must or must not be beside it. */
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
  const given = new Set<string>()
  for (const option of command.options)
    command.on(`option:${option.name()}`, () => given.add(option.long!))
  return {
    /** errors: `config.invalid`, for the first rule that is broken. */
    check() {
      for (const { flag, needs, excludes, remedy } of rules) {
        if (!given.has(flag)) continue
        if (needs !== undefined && !given.has(needs))
          throw new TabringError(
            'config.invalid',
            `${flag}: needs ${needs}. ${remedy ?? `Add it, or omit ${flag}.`}`,
          )
        if (excludes !== undefined && given.has(excludes))
          throw new TabringError(
            'config.invalid',
            `${flag}: cannot be combined with ${excludes}${remedy ?? '. Pass one of them.'}`,
          )
      }
    },
  }
}
