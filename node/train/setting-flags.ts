import { type Command, Option } from 'commander'
import { metas } from '../../demos/metas.ts'
import type { ConfigKey } from '../../src/trainer/settings/config.ts'
import {
  boundsOf,
  defaultOf,
  defaultsOf,
  docOf,
  kindOf,
  type OfDemos,
  optionsOf,
  type SettingRow,
  textOf,
} from '../../src/trainer/settings/row.ts'
import { rows } from '../../src/trainer/settings/table.ts'
import type { FlagRule } from '../flag-rules.ts'
import { positiveNumber, wholeNumber } from '../parse-number.ts'

// The settings of a run as flags.

const demos: OfDemos = metas
const flagged = Object.entries<SettingRow>(rows).filter(([, { flag }]) => flag !== undefined)

/** The settings that have a flag: as keys of the command's options. */
export const flaggedKeys = flagged.map(([key]) => key) as ConfigKey[]

const dashed = (key: string) => key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

/** `strategy=alone` as a command line has it. */
function flagOf(setting: string): string {
  const [key, value] = setting.split('=')
  return [`--${dashed(key)}`, ...(value === undefined || value === 'true' ? [] : [value])].join(' ')
}

/** Markdown as a command line has it: settings as flags. */
const plain = (markdown: string) =>
  markdown.replace(/`([^`]+)`/g, (_, name) => (Object.hasOwn(rows, name) ? flagOf(name) : name))

function helpOf(row: SettingRow, ofDemos: string | undefined): string {
  const { help, docDefault } = row
  if (help) return textOf(help, demos)
  const standard = ofDemos ?? (docDefault && plain(textOf(docDefault, demos)))
  return `${plain(docOf(row, demos))}${standard === undefined ? '' : ` (default: ${standard})`}`
}

function optionOf(key: string, row: SettingRow): Option {
  const { flag, onCommand } = row
  const ofDemos = defaultsOf(key, row, demos)
  const standard = key === 'demo' ? Object.keys(demos)[0] : (onCommand?.default ?? defaultOf(row))
  const help = helpOf(row, ofDemos)
  if (flag === '') return new Option(`--${standard ? 'no-' : ''}${dashed(key)}`, help)
  const option = new Option(`--${dashed(key)} <${flag}>`, help)
  const choices = key === 'demo' ? Object.keys(demos) : (onCommand?.choices ?? optionsOf(row))
  if (choices) option.choices(choices)
  if (kindOf(row) === 'number') {
    const { isWhole, min, max } = boundsOf(row)
    option.argParser(isWhole ? wholeNumber(onCommand?.min ?? min!, max) : positiveNumber(min === 0))
  }
  if (ofDemos === undefined && standard !== undefined) option.default(standard)
  return option
}

export function addSettingFlags(command: Command): void {
  for (const [key, row] of flagged) command.addOption(optionOf(key, row))
}

/** What settings do without others, which the command refuses. */
export const settingRules: readonly FlagRule[] = flagged.flatMap(([key, { idle }]): FlagRule[] => {
  if (!idle) return []
  const { remedy } = idle
  if ('without' in idle) return [{ flag: flagOf(key), needs: flagOf(idle.without), remedy }]
  // Of two flags, the one that counts is in the way of the other.
  if (!idle.with.includes('=')) return [{ flag: flagOf(idle.with), excludes: flagOf(key), remedy }]
  return [{ flag: flagOf(key), excludes: flagOf(idle.with), remedy }]
})
