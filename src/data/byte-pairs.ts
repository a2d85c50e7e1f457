import { DataError } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'
import { checkChoice, checkOptions } from '../util/options.ts'
import { type Tokenizer, unknownToken } from './text.ts'

/** OpenAI's published encodings. GPT-2's is `r50k_base`; `gpt2` is another name for it, as in tiktoken. */
export type BytePairEncoding = 'gpt2' | 'r50k_base' | 'cl100k_base'

/** Tokens that stand for no text, by what they are written as. source: tiktoken's registry of encodings. */
const specialTokens = {
  r50k_base: { '<|endoftext|>': 50256 },
  cl100k_base: {
    '<|endoftext|>': 100257,
    '<|fim_prefix|>': 100258,
    '<|fim_middle|>': 100259,
    '<|fim_suffix|>': 100260,
    '<|endofprompt|>': 100276,
  },
} as const

export interface EncodeOptions {
  /** Special tokens that the text may contain, each of which becomes one token: a list, or all. Default: none. */
  allowedSpecial?: readonly string[] | 'all'
}

export interface BytePairTokenizer extends Tokenizer {
  /** The highest token + 1, like tiktoken's `n_vocab`; cl100k_base skips some numbers below it. */
  readonly vocabularySize: number
  /** Special tokens: number by text. */
  readonly specialTokens: Readonly<Record<string, number>>
  /** Token of `<|endoftext|>`, which separates documents for GPT-2: 50256 in r50k_base, 100257 in cl100k_base. */
  readonly endOfText: number
  /**
   * Returns the tokens of a text. errors: `data.malformed` for a special token in the text that is not allowed; `config.invalid` for an
   * allowed one that the encoding does not have.
   */
  encode(text: string, options?: EncodeOptions): Int32Array<ArrayBuffer>
  /**
   * Returns the text of tokens, including special ones. Bytes that are not UTF-8, as when the tokens of one character are split, become
   * U+FFFD.
   *
   * errors: `data.malformed` for a number that the encoding does not have.
   */
  decode(tokens: Iterable<number>): string
}

/**
 * Returns the tokenizer of an encoding. `await` it once: this call loads its tables (0.6 to 1.2 MB).
 *
 * errors: `config.invalid` for an unknown encoding.
 */
export async function bytePairTokenizer(
  encoding: BytePairEncoding = 'r50k_base',
): Promise<BytePairTokenizer> {
  checkChoice('bytePairTokenizer', 'encoding', encoding, ['gpt2', 'r50k_base', 'cl100k_base'])
  const known = encoding === 'gpt2' ? 'r50k_base' : encoding
  const [{ encode }, { default: table }] =
    known === 'r50k_base'
      ? await Promise.all([
          import('gpt-tokenizer/esm/encoding/r50k_base'),
          import('gpt-tokenizer/esm/bpeRanks/r50k_base'),
        ])
      : await Promise.all([
          import('gpt-tokenizer/esm/encoding/cl100k_base'),
          import('gpt-tokenizer/esm/bpeRanks/cl100k_base'),
        ])
  const special: Readonly<Record<string, number>> = specialTokens[known]
  const names = Object.keys(special)
  const written = new Map(Object.entries(special).map(([name, token]) => [token, name]))
  const anySpecial = new RegExp(`(${names.map((name) => name.replaceAll('|', '\\|')).join('|')})`)
  const vocabularySize = Math.max(table.length - 1, ...Object.values(special)) + 1

  return {
    vocabularySize,
    specialTokens: special,
    endOfText: special['<|endoftext|>'],

    encode(text, options = {}) {
      checkOptions('bytePairTokenizer: encode', options, { allowedSpecial: true })
      const { allowedSpecial = [] } = options
      const allowed = new Set(allowedSpecial === 'all' ? names : allowedSpecial)
      for (const name of allowed)
        if (!Object.hasOwn(special, name))
          throw new DataError(
            'config.invalid',
            `bytePairTokenizer: allowedSpecial must name special tokens of ${known} (${names.join(', ')}), got ${quoted(name)}. Correct the name.`,
          )
      const tokens: number[] = []
      let at = 0
      // Odd parts are the separators: gpt-tokenizer itself finds an allowed special token only where the text begins with it.
      text.split(anySpecial).forEach((part, i) => {
        if (i % 2 === 0) {
          for (const token of encode(part, { disallowedSpecial: new Set() })) tokens.push(token)
        } else if (allowed.has(part)) {
          tokens.push(special[part])
        } else {
          throw new DataError(
            'data.malformed',
            `bytePairTokenizer: the text contains the special token ${part} at character ${at}. Allow it with encode(text, { allowedSpecial: ['${part}'] }), or remove it from the text.`,
          )
        }
        at += [...part].length
      })
      return Int32Array.from(tokens)
    },

    // Not gpt-tokenizer's: that keeps the bytes of a character cut apart for the text it decodes next.
    decode(tokens) {
      const bytes: number[] = []
      const encoder = new TextEncoder()
      for (const token of tokens) {
        const own = table[token] ?? written.get(token)
        if (own === undefined)
          throw unknownToken(`bytePairTokenizer (${known})`, token, vocabularySize)
        for (const byte of typeof own === 'string' ? encoder.encode(own) : own) bytes.push(byte)
      }
      return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes))
    },
  }
}
