import { DataError } from '../../util/errors.ts'
import { isRecord, isSignal } from '../../util/kind-of.ts'
import {
  checkArgument,
  checkNumber,
  checkOptions,
  isCount,
  isNotNegative,
} from '../../util/options.ts'
import { permutation } from '../../util/random.ts'
import { splitEpoch } from '../datasets.ts'
import { malformed } from '../malformed.ts'
import { type LossChoice, learnedTokens, type TokenizedText } from './learned-tokens.ts'
import type { PretrainedTokenizer } from './pretrained-tokenizer.ts'
import { packParts, TextDataset } from './text-dataset.ts'
import type { TextTable } from './text-table.ts'

/** Names and defaults are TRL's, but for `blockSize`, its `max_length`. */
export interface TextOptions extends LossChoice {
  /** Length of a row in tokens. Longer texts are cut there. */
  blockSize: number
  /** True if several texts share a row. Default false. */
  packing?: boolean
  /** Share of the texts that are kept for evaluation, chosen by `seed`; of one long text its end. Default 0. */
  heldOut?: number
  seed?: number
  /** Gets how many texts are done. */
  onProgress?: (progress: { readonly done: number; readonly total: number }) => void
  signal?: AbortSignal
}

/** What became tokens. Texts are named by their lines. */
export interface TextReport {
  readonly texts: number
  readonly tokens: number
  /** Tokens with a loss. */
  readonly learned: number
  readonly longest: number
  /** Lines of texts that were longer than `blockSize`, and lost their ends. */
  readonly truncated: readonly number[]
  /** Lines of texts without any loss, which are left out: their prompts alone fill a row. */
  readonly leftOut: readonly number[]
  readonly rows: number
  readonly heldOutRows: number
}

export interface TokenizedTexts {
  readonly train: TextDataset
  /** Absent if nothing is held out. */
  readonly heldOut: TextDataset | undefined
  readonly report: TextReport
}

const known = {
  blockSize: true,
  completionOnlyLoss: 'flag',
  assistantOnlyLoss: 'flag',
  packing: 'flag',
  heldOut: true,
  seed: true,
  onProgress: 'function',
  signal: true,
} as const

/** Texts between two checks of the signal, and turns of the event loop. */
const atOnce = 64

/**
 * Turns texts into rows of tokens to train on, and to evaluate on.
 *
 * One long text becomes windows that overlap by one token, so that each token but the first has a loss once; what is left at
 * the end and fills no window is not used. A row of a table is one text,
 * which ends with the model's end-of-text token, and of messages as the chat template ends it.
 * errors: `data.malformed`, naming the line, for messages that the template refuses; for too little text; the signal's reason.
 */
export async function tokenizeTexts(
  table: TextTable,
  tokenizer: PretrainedTokenizer,
  options: TextOptions,
): Promise<TokenizedTexts> {
  const isTable = isRecord(table) && Array.isArray(table.rows) && Array.isArray(table.lines)
  checkArgument('tokenizeTexts', 'table', table, isTable, 'what readTextTable gives')
  const isTokenizer =
    isRecord(tokenizer) && 'encode' in tokenizer && 'applyChatTemplate' in tokenizer
  checkArgument('tokenizeTexts', 'tokenizer', tokenizer, isTokenizer, 'what readTokenizer gives')
  checkOptions('tokenizeTexts', options, known)
  const { blockSize, heldOut = 0, seed = 0, packing = false, onProgress, signal } = options
  const isBlock = (size: number) => isCount(size) && size > 1
  checkNumber(
    'tokenizeTexts',
    'options.blockSize',
    blockSize,
    isBlock,
    'a whole number above 1',
    true,
  )
  const isPart = (share: number) => isNotNegative(share) && share < 1
  checkNumber('tokenizeTexts', 'heldOut', heldOut, isPart, 'at least 0 and below 1')
  checkArgument('tokenizeTexts', 'signal', signal, isSignal(signal), 'an AbortSignal')
  if (options.assistantOnlyLoss && table.form !== 'messages')
    throw new DataError(
      'config.invalid',
      `tokenizeTexts: assistantOnlyLoss needs rows of messages, got the form "${table.form}" in ${table.name}. Leave it out.`,
    )
  const texts: TokenizedText[] = []
  for (const [i, row] of table.rows.entries()) {
    if (i % atOnce === 0) {
      onProgress?.({ done: i, total: table.rows.length })
      await new Promise((resolve) => setTimeout(resolve))
      signal?.throwIfAborted()
    }
    const where = `${table.name}, ${table.unit} ${table.lines[i]}`
    texts.push(learnedTokens(row, tokenizer, table.form === 'windows', options, where))
  }
  onProgress?.({ done: texts.length, total: texts.length })
  const padToken = tokenizer.padToken ?? tokenizer.eosToken ?? 0
  const rows = (parts: readonly (readonly Part[])[]) =>
    datasetOf(texts, parts, { blockSize, padToken })
  const isLong = table.form === 'windows'
  const { parts, heldOutParts, truncated, leftOut } = isLong
    ? windowsOf(table, texts[0], blockSize, heldOut)
    : partsOf(table, texts, blockSize, heldOut, seed)
  const packed = (all: readonly Part[]) => {
    if (isLong || !packing) return all.map((part) => [part])
    const lengths = all.map(({ begin, end }) => end - begin)
    return packParts(lengths, blockSize).map((row) => row.map((i) => all[i]))
  }
  const train = rows(packed(parts))
  const other = heldOutParts.length > 0 ? rows(packed(heldOutParts)) : undefined
  const sum = (count: (text: TokenizedText) => number) =>
    texts.reduce((total, text) => total + count(text), 0)
  const report = {
    texts: texts.length,
    tokens: sum(({ tokens }) => tokens.length),
    learned: sum(({ learned }) => learned.reduce((total, one) => total + one, 0)),
    longest: texts.reduce((longest, { tokens }) => Math.max(longest, tokens.length), 0),
    truncated,
    leftOut,
    rows: train.length,
    heldOutRows: other?.length ?? 0,
  }
  return { train, heldOut: other, report }
}

/** Tokens of a text that lie in a row. */
interface Part {
  readonly text: number
  readonly begin: number
  readonly end: number
}

interface Parts {
  readonly parts: readonly Part[]
  readonly heldOutParts: readonly Part[]
  readonly truncated: readonly number[]
  readonly leftOut: readonly number[]
}

function windowsOf(
  { name }: TextTable,
  { tokens: { length } }: TokenizedText,
  blockSize: number,
  heldOut: number,
): Parts {
  const parts: Part[] = []
  for (let begin = 0; begin + blockSize <= length; begin += blockSize - 1)
    parts.push({ text: 0, begin, end: begin + blockSize })
  const wanted = heldOut > 0 ? 2 : 1
  if (parts.length < wanted)
    throw malformed(
      name,
      `text for ${wanted} window${wanted > 1 ? 's' : ''} of ${blockSize} tokens${wanted > 1 ? ', one of them held out' : ''}`,
      `${length} tokens`,
      'Use a longer text or a smaller blockSize.',
    )
  const kept = parts.length - heldOutCount(parts.length, heldOut)
  return {
    parts: parts.slice(0, kept),
    heldOutParts: parts.slice(kept),
    truncated: [],
    leftOut: [],
  }
}

/** At least one where a share is wanted. */
const heldOutCount = (count: number, share: number) =>
  share > 0 ? Math.max(1, Math.min(count - 1, Math.round(count * share))) : 0

function partsOf(
  { name, lines }: TextTable,
  texts: readonly TokenizedText[],
  blockSize: number,
  heldOut: number,
  seed: number,
): Parts {
  const all = texts.map(({ tokens }, text) => ({
    text,
    begin: 0,
    end: Math.min(blockSize, tokens.length),
  }))
  const isLearned = ({ text, end }: Part) => texts[text].learned.subarray(1, end).includes(1)
  const used = all.filter(isLearned)
  const linesOf = (parts: readonly Part[]) => parts.map(({ text }) => lines[text])
  const wanted = heldOut > 0 ? 2 : 1
  if (used.length < wanted)
    throw malformed(
      name,
      wanted > 1
        ? 'two rows or more, one of them held out'
        : `a row with a loss within ${blockSize} tokens`,
      `${used.length} of ${all.length}`,
      wanted > 1
        ? 'Add rows, or pass heldOut: 0.'
        : 'Use a larger blockSize, or rows with an answer.',
    )
  const count = heldOutCount(used.length, heldOut)
  const chosen = new Set(permutation(seed, splitEpoch, used.length).subarray(0, count))
  return {
    parts: used.filter((_, i) => !chosen.has(i)),
    heldOutParts: used.filter((_, i) => chosen.has(i)),
    truncated: linesOf(all.filter(({ text, end }) => end < texts[text].tokens.length)),
    leftOut: linesOf(all.filter((part) => !isLearned(part))),
  }
}

/** A data set with the tokens that its rows have, and no others: it may be posted to a worker. */
function datasetOf(
  texts: readonly TokenizedText[],
  rows: readonly (readonly Part[])[],
  { blockSize, padToken }: { blockSize: number; padToken: number },
): TextDataset {
  const all = rows.flat()
  const count = all.reduce((total, { begin, end }) => total + end - begin, 0)
  const tokens = new Int32Array(count)
  const learned = new Uint8Array(count)
  const parts = new Uint32Array(2 * all.length)
  let at = 0
  for (const [i, { text, begin, end }] of all.entries()) {
    tokens.set(texts[text].tokens.subarray(begin, end), at)
    learned.set(texts[text].learned.subarray(begin, end), at)
    parts.set([at, at + end - begin], 2 * i)
    at += end - begin
  }
  const starts = new Uint32Array(rows.length + 1)
  for (const [i, row] of rows.entries()) starts[i + 1] = starts[i] + row.length
  return new TextDataset({ tokens, learned, parts, rows: starts, blockSize, padToken })
}
