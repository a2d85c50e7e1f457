import { DataError, TabringError } from '../../src/util/errors.ts'

/** Characters that the model sees at once. */
export const blockSize = 32
/** Windows for training begin this far apart, so that they overlap. */
const trainStride = 8
/** With fewer, the held-out tenth is no whole window and the character behind it. */
export const fewestCharacters = 10 * (blockSize + 1)
/** Different ones: alphabets fit, thousands of word signs do not. */
export const maxSymbols = 256

/** Windows over a part of the text. */
export interface Windows {
  readonly count: number
  /** How far apart they begin. */
  readonly stride: number
  /** The text as numbers in `symbols`. */
  readonly tokens: Int32Array<ArrayBuffer>
}

export interface TextData {
  /** The characters of the text, each once; a character's token is its place here. */
  readonly symbols: readonly string[]
  readonly train: Windows
  /** The last tenth of the text. */
  readonly test: Windows
  /** The text's first words. */
  readonly opening: string
}

/** Line ends become one character, and so does a letter with its accent. */
const plainText = (text: string) => text.replaceAll(/\r\n?/g, '\n').normalize('NFC')

/** Returns the text of bytes in UTF-8, with or without a byte order mark. errors: `data.malformed`. */
export function decodeText(bytes: Uint8Array<ArrayBuffer>): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw malformed('the file is not UTF-8', 'Save it as UTF-8, or paste it')
  }
}

/** Returns a text as tokens, its last tenth held out. errors: `data.malformed` for one that is too short, or of too many different characters. */
export function readText(text: string): TextData {
  const characters = Array.from(plainText(text))
  if (characters.length < fewestCharacters) {
    throw malformed(
      `it is too short (${characters.length} of at least ${fewestCharacters} characters)`,
      'Use a longer one',
    )
  }
  const symbols = [...new Set(characters)].sort()
  if (symbols.length > maxSymbols) {
    throw malformed(
      `it has ${symbols.length} different characters, more than ${maxSymbols}`,
      'Use one in an alphabetic script',
    )
  }
  const tokenOf = tokensBy(symbols)
  const tokens = Int32Array.from(characters, (character) => tokenOf.get(character)!)
  const cut = Math.floor(0.9 * tokens.length)
  return {
    symbols,
    train: windowsOver(tokens.slice(0, cut), trainStride),
    test: windowsOver(tokens.slice(cut), blockSize),
    opening: openingOf(characters),
  }
}

/** Its last one may end where the text does: the character behind a window is the last target. */
const windowsOver = (tokens: Int32Array<ArrayBuffer>, stride: number): Windows => ({
  count: Math.floor((tokens.length - blockSize - 1) / stride) + 1,
  stride,
  tokens,
})

/** Writes a window and, one character on, what is to follow each of its characters. shape: [blockSize] each */
export function fillWindow(
  { tokens, stride }: Windows,
  index: number,
  x: { set(values: Int32Array): void },
  y: { set(values: Int32Array): void },
): void {
  const start = index * stride
  x.set(tokens.subarray(start, start + blockSize))
  y.set(tokens.subarray(start + 1, start + blockSize + 1))
}

/** Whole words, about a third of what the model sees at once. */
function openingOf(characters: readonly string[]): string {
  const start = characters.slice(0, 12).join('').trimStart()
  const lastSpace = start.lastIndexOf(' ')
  return lastSpace > 0 ? start.slice(0, lastSpace) : start || characters[0]
}

const tokensBy = (symbols: readonly string[]) =>
  new Map(symbols.map((symbol, token) => [symbol, token]))

/** The characters of a prompt that the text does not have, each once. */
export function unknownIn(prompt: string, symbols: readonly string[]): string[] {
  const known = new Set(symbols)
  return [...new Set(plainText(prompt))].filter((character) => !known.has(character))
}

/** Returns the tokens of a prompt's last characters, as many as the model sees. errors: `config.invalid` for none, and for characters that the text does not have. */
export function readPrompt(prompt: unknown, { symbols }: Pick<TextData, 'symbols'>): number[] {
  if (typeof prompt !== 'string' || prompt === '') {
    throw invalid('prompt', prompt === '' ? 'it is empty' : `${String(prompt)} is no text`)
  }
  const unknown = unknownIn(prompt, symbols)
  if (unknown.length > 0) {
    throw invalid('prompt', `the text has no ${unknown.map((one) => `"${one}"`).join(' ')}`)
  }
  const tokenOf = tokensBy(symbols)
  return Array.from(plainText(prompt), (character) => tokenOf.get(character)!).slice(-blockSize)
}

export const invalid = (name: string, problem: string) =>
  new TabringError('config.invalid', `${name}: ${problem}. Use another ${name}.`)

const malformed = (problem: string, remedy: string) =>
  new DataError('data.malformed', `text: ${problem}. ${remedy}.`)
