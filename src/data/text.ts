import { DataError } from '../util/errors.ts'
import { isDetached, isIterable, isOf, isText, quoted } from '../util/kind-of.ts'
import { checkArgument, checkList, checkOptions, checkText } from '../util/options.ts'
import { requireIndex } from './datasets.ts'
import type { DatasetDescription, HostTensor } from './descriptions.ts'
import type { Dataset } from './samples.ts'

/** Converts text to numbers from 0 to vocabularySize - 1 and back. */
export interface Tokenizer {
  readonly vocabularySize: number
  encode(text: string): Int32Array<ArrayBuffer>
  decode(tokens: Iterable<number>): string
}

/** The error for a number that stands for no token. */
export const unknownToken = (where: string, token: number, vocabularySize: number) =>
  new DataError(
    'data.malformed',
    `${where}: expected a known token from 0 to ${vocabularySize - 1}, got ${quoted(token)}. Decode with the tokenizer that encoded the text.`,
  )

const isTokens = (tokens: Int32Array): boolean => isOf(tokens, Int32Array)

/** A tokenizer with one token per character (Unicode code point). */
export class CharTokenizer implements Tokenizer {
  /** Character of each token. */
  readonly characters: readonly string[]
  readonly #tokens: ReadonlyMap<string, number>

  /** errors: `config.invalid` if a character repeats or is more than one code point. */
  constructor(characters: readonly string[]) {
    checkList('CharTokenizer', 'characters', characters, isText, 'characters')
    this.#tokens = new Map(characters.map((character, i) => [character, i]))
    const wrong = characters.find((character) => [...character].length !== 1)
    if (wrong !== undefined || this.#tokens.size !== characters.length)
      throw new DataError(
        'config.invalid',
        `CharTokenizer: expected distinct single characters, got ${wrong === undefined ? 'one twice' : quoted(wrong)}. Use CharTokenizer.of(text).`,
      )
    this.characters = characters
  }

  /** Returns a tokenizer for every character of `text`, numbered by code point. */
  static of(text: string): CharTokenizer {
    checkText('CharTokenizer.of', 'text', text)
    const found = [...new Set(text)]
    return new CharTokenizer(found.sort((a, b) => a.codePointAt(0)! - b.codePointAt(0)!))
  }

  get vocabularySize(): number {
    return this.characters.length
  }

  /** Returns the tokens of a text. errors: `data.malformed` for an unknown character. */
  encode(text: string): Int32Array<ArrayBuffer> {
    checkText('CharTokenizer', 'text', text)
    return Int32Array.from([...text], (character, at) => {
      const token = this.#tokens.get(character)
      if (token === undefined)
        throw new DataError(
          'data.malformed',
          `CharTokenizer: expected one of ${this.characters.length} known characters, got ${JSON.stringify(character)} at character ${at}. Create the tokenizer from the whole text.`,
        )
      return token
    })
  }

  /** Returns the text of tokens. errors: `data.malformed` for an unknown token. */
  decode(tokens: Iterable<number>): string {
    checkArgument('CharTokenizer', 'tokens', tokens, isIterable(tokens), 'a list of tokens')
    return Array.from(tokens, (token) => {
      const character = this.characters[token]
      if (character === undefined) throw unknownToken('CharTokenizer', token, this.vocabularySize)
      return character
    }).join('')
  }
}

/**
 * Windows of a token sequence for next-token prediction: `x` tokens i .. i+T-1, `y` tokens i+1 .. i+T, both i32 [blockSize].
 *
 * Windows start `stride` tokens apart (default: blockSize, so that they do not overlap); an incomplete last one is dropped.
 * errors: `data.malformed` if the tokens do not fill one window; `config.invalid` for options out of range or unknown ones.
 */
export class TokenDataset implements Dataset<{ x: HostTensor; y: HostTensor }> {
  readonly tokens: Int32Array<ArrayBuffer>
  readonly blockSize: number
  readonly stride: number
  readonly length: number

  constructor(tokens: Int32Array<ArrayBuffer>, options: { blockSize: number; stride?: number }) {
    checkArgument('TokenDataset', 'tokens', tokens, isTokens(tokens), 'an Int32Array')
    checkOptions('TokenDataset', options, { blockSize: 'number', stride: 'number' })
    const { blockSize, stride = blockSize } = options
    if (!Number.isInteger(blockSize) || blockSize < 1 || !Number.isInteger(stride) || stride < 1)
      throw new DataError(
        'config.invalid',
        `TokenDataset: blockSize and stride must be whole numbers above 0, got ${blockSize} and ${stride}. Correct them.`,
      )
    if (tokens.length <= blockSize)
      throw new DataError(
        'data.malformed',
        `TokenDataset: expected more than ${blockSize} tokens, got ${tokens.length}. Use a longer text or a smaller blockSize.`,
      )
    this.tokens = tokens
    this.blockSize = blockSize
    this.stride = stride
    this.length = Math.floor((tokens.length - 1 - blockSize) / stride) + 1
  }

  get(index: number): { x: HostTensor; y: HostTensor } {
    requireIndex('TokenDataset', index, this.length)
    checkArgument('TokenDataset', 'tokens', this.tokens, !isDetached(this.tokens), 'kept')
    const start = index * this.stride
    const window = (from: number) => ({
      shape: [this.blockSize],
      data: this.tokens.slice(from, from + this.blockSize),
    })
    return { x: window(start), y: window(start + 1) }
  }

  describe(): DatasetDescription {
    const { tokens, blockSize, stride } = this
    return { kind: 'tokens', tokens, blockSize, stride }
  }
}
