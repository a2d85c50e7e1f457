import { clipped, clippedName } from '../../util/clipped.ts'
import { isPlain, isText, quoted } from '../../util/kind-of.ts'
import { checkChoice, checkOptions, checkText } from '../../util/options.ts'
import { type ByteSource, readBytes } from '../byte-source.ts'
import { type CsvTable, readCsv } from '../csv.ts'
import { foreignBytes, foreignFile } from '../foreign.ts'
import { malformed } from '../malformed.ts'
import { decodeUtf8 } from '../utf8.ts'
import type { ChatMessage } from './pretrained-tokenizer.ts'

const formats = ['text', 'jsonl', 'json', 'csv'] as const

/** A row in one of TRL's forms. */
export type TextRow =
  | { readonly text: string }
  | { readonly prompt: string; readonly completion: string }
  | { readonly prompt: readonly ChatMessage[]; readonly completion: readonly ChatMessage[] }
  | { readonly messages: readonly ChatMessage[] }

/** Texts to train a language model on, each with the line on which it begins. */
export interface TextTable {
  /** The file's name in errors. */
  readonly name: string
  /** `windows`: one long text, to be cut into windows. Otherwise a row is a text. */
  readonly form: 'windows' | 'text' | 'prompt' | 'messages'
  readonly rows: readonly TextRow[]
  /** Where each row begins, from 1. shape: [rows] */
  readonly lines: readonly number[]
  /** What `lines` count: lines of the file, or rows of a JSON list. */
  readonly unit: 'line' | 'row'
}

export interface TextTableOptions {
  /** Default: by the end of the file's name (.jsonl, .ndjson, .json, .csv, .tsv), otherwise one long text. */
  format?: (typeof formats)[number]
  /** For sources without a name. Default `text`. */
  name?: string
}

interface Read {
  readonly line: number
  readonly value: unknown
}

/**
 * Reads texts in the forms of TRL: one long text, or rows of JSON or CSV with `text`, with `prompt` and `completion`, or with `messages` of
 * `role` and `content`. The first row's form is that of all; further fields are left out.
 *
 * A prompt and its completion may be lists of messages. In a CSV file messages are JSON.
 * errors: `data.malformed`, naming the line, for another form, an empty text, and bytes that are not UTF-8; `data.missing`.
 */
export async function readTextTable(
  source: ByteSource,
  options: TextTableOptions = {},
): Promise<TextTable> {
  const known = { format: true, name: true } as const
  const { format, name = 'text' } = checkOptions('readTextTable', options, known)
  checkChoice('readTextTable', 'format', format, formats)
  checkText('readTextTable', 'name', name)
  const file = await readBytes(source, name)
  const where = clippedName(file.name)
  const foreign = foreignFile(where, 'a file of text', file.bytes.subarray(0, foreignBytes))
  if (foreign) throw foreign
  const chosen = format ?? formatOf(file.name)
  const text = decodeUtf8(file.bytes, where)
  if (chosen === 'text') {
    if (text.trim() === '') throw malformed(where, 'text', 'spaces alone', 'Use another file.')
    return { name: where, form: 'windows', rows: [{ text }], lines: [1], unit: 'line' }
  }
  const rows =
    chosen === 'csv' ? rowsOfCsv(await readCsv(text, where)) : rowsOfJson(text, where, chosen)
  if (rows.length === 0) throw malformed(where, 'one row or more', 'none', 'Use another file.')
  return tableOf(where, rows, chosen === 'json' ? 'row' : 'line')
}

function formatOf(name: string): (typeof formats)[number] {
  const [, end = ''] = /\.(\w+)$/.exec(name.toLowerCase()) ?? []
  if (end === 'ndjson') return 'jsonl'
  if (end === 'tsv') return 'csv'
  return formats.find((format) => format === end) ?? 'text'
}

function rowsOfJson(text: string, where: string, format: 'json' | 'jsonl'): Read[] {
  if (format === 'json') {
    const all = parsed(text, where)
    if (!Array.isArray(all))
      throw malformed(where, 'a list of rows', quoted(all), 'Write one object a line as .jsonl.')
    return all.map((value, i) => ({ line: i + 1, value }))
  }
  return text.split('\n').flatMap((own, i) => {
    const line = i + 1
    return own.trim() === '' ? [] : [{ line, value: parsed(own, `${where}, line ${line}`) }]
  })
}

function parsed(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw Object.assign(malformed(where, 'JSON', clipped(text), 'Correct it.'), { cause })
  }
}

function rowsOfCsv(table: CsvTable): Read[] {
  const { columns, lines, records, name } = table
  return records.map((record, i) => {
    const value = Object.fromEntries(columns.map((column, at) => [column, record[at]]))
    const { messages } = value
    if (messages === undefined) return { line: lines[i], value }
    const list = parsed(messages, `${name}, line ${lines[i]}, column "messages"`)
    return { line: lines[i], value: { ...value, messages: list } }
  })
}

const isMessage = (value: unknown): value is ChatMessage =>
  isPlain(value) && isText(value['role']) && isText(value['content'])

const isMessages = (value: unknown): value is ChatMessage[] =>
  Array.isArray(value) && value.length > 0 && value.every(isMessage)

const isFilled = (value: unknown): value is string => isText(value) && value !== ''

/** What each form's row must be, in words and as a test that gives the row without other fields. */
const forms = {
  messages: {
    fields: ['messages'],
    expected: 'messages, a list of { role, content } with texts',
    read: ({ messages }: Record<string, unknown>) => isMessages(messages) && { messages },
  },
  prompt: {
    fields: ['prompt', 'completion'],
    expected: 'a prompt and a completion, both texts that are not empty, or both lists of messages',
    read: ({ prompt, completion }: Record<string, unknown>) =>
      ((isText(prompt) && isFilled(completion)) ||
        (isMessages(prompt) && isMessages(completion))) &&
      ({ prompt, completion } as TextRow),
  },
  text: {
    fields: ['text'],
    expected: 'a text that is not empty',
    read: ({ text }: Record<string, unknown>) => isFilled(text) && { text },
  },
} as const

function tableOf(name: string, read: readonly Read[], unit: TextTable['unit']): TextTable {
  const [first] = read
  const names = isPlain(first.value) ? Object.keys(first.value) : []
  const all = Object.keys(forms) as (keyof typeof forms)[]
  const form = all.find((one) => forms[one].fields.every((field) => names.includes(field)))
  if (!form)
    throw malformed(
      `${name}, ${unit} ${first.line}`,
      'a row with text, with prompt and completion, or with messages',
      isPlain(first.value) ? clipped(names.join(', ')) || 'no fields' : quoted(first.value),
      'Rename its fields.',
    )
  const rows = read.map(({ line, value }): TextRow => {
    const row = isPlain(value) && forms[form].read(value)
    if (row) return row
    const got = isPlain(value)
      ? forms[form].fields.map((field) => `${field}: ${quoted(value[field])}`).join(', ')
      : quoted(value)
    throw malformed(`${name}, ${unit} ${line}`, forms[form].expected, got, 'Correct the row.')
  })
  return { name, form, rows, lines: read.map(({ line }) => line), unit }
}
