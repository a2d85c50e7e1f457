import { DataError } from '../util/errors.ts'
import { checkChoice, checkOptions } from '../util/options.ts'
import { type Tokenizer, unknownToken } from './text.ts'

/** OpenAI's published encodings; GPT-2's own is `r50k_base`, and `gpt2` another name of it, as in tiktoken. */
export type BytePairEncoding = 'gpt2' | 'r50k_base' | 'cl100k_base'

/** Tokens that stand for no text of their own, by what they are written as. source: tiktoken's registry of encodings. */
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
  /** Special tokens that the text may hold, each becoming its one number: a list, or all. default: none */
  allowedSpecial?: readonly string[] | 'all'
}

export interface BytePairTokenizer extends Tokenizer {
  /** One more than the highest number, as tiktoken's `n_vocab`; cl100k_base leaves some numbers below it out. */
  readonly vocabularySize: number
  /** The numbers of special tokens, by what they are written as. */
  readonly specialTokens: Readonly<Record<string, number>>
  /** The number of `<|endoftext|>`, which GPT-2 has between documents: 50256 in r50k_base, 100257 in cl100k_base. */
  readonly endOfText: number
  /**
   * errors: `data.malformed` for a special token in the text that is not allowed; `config.invalid` for an allowed one that the
   * encoding does not have.
   */
  encode(text: string, options?: EncodeOptions): Int32Array<ArrayBuffer>
  /**
   * The text of tokens, special ones as they are written. Bytes that are no UTF-8, as where a character's tokens are cut apart, become
   * U+FFFD.
   *
   * errors: `data.malformed` for a number that the encoding does not have.
   */
  decode(tokens: Iterable<number>): string
}

/**
 * Returns the tokenizer of an encoding. `await` it once: its tables (0.6 to 1.2 MB) are loaded when this is called and not before.
 *
 * errors: `config.invalid` for an encoding that is none of these.
 */
export async function bytePairTokenizer(
  name: BytePairEncoding = 'r50k_base',
): Promise<BytePairTokenizer> {
  checkChoice('bytePairTokenizer', 'encoding', name, ['gpt2', 'r50k_base', 'cl100k_base'])
  const encoding = name === 'gpt2' ? 'r50k_base' : name
  const [{ encode }, { default: table }] =
    encoding === 'r50k_base'
      ? await Promise.all([
          import('gpt-tokenizer/esm/encoding/r50k_base'),
          import('gpt-tokenizer/esm/bpeRanks/r50k_base'),
        ])
      : await Promise.all([
          import('gpt-tokenizer/esm/encoding/cl100k_base'),
          import('gpt-tokenizer/esm/bpeRanks/cl100k_base'),
        ])
  const special: Readonly<Record<string, number>> = specialTokens[encoding]
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
            `bytePairTokenizer: expected allowedSpecial to name special tokens of ${encoding} (${names.join(', ')}), got ${JSON.stringify(name)}. Correct the name.`,
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
            `bytePairTokenizer: expected text without special tokens, got ${part} at character ${at}. Allow it with encode(text, { allowedSpecial: ['${part}'] }), or take it out of the text.`,
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
          throw unknownToken(`bytePairTokenizer (${encoding})`, token, vocabularySize)
        for (const byte of typeof own === 'string' ? encoder.encode(own) : own) bytes.push(byte)
      }
      return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes))
    },
  }
}
