import { describe, expect, test } from 'vitest'
import { bytePairTokenizer } from '../../../src/data/byte-pairs.ts'
import { CharTokenizer } from '../../../src/data/text.ts'

const gpt2 = await bytePairTokenizer()
const gpt4 = await bytePairTokenizer('cl100k_base')
const all = { allowedSpecial: 'all' } as const

const refusal = (code: string, message: RegExp) =>
  expect.objectContaining({ name: 'DataError', code, message: expect.stringMatching(message) })

describe('special tokens', () => {
  test('have the published numbers', () => {
    expect(gpt2.endOfText).toBe(50256)
    expect(gpt2.specialTokens).toEqual({ '<|endoftext|>': 50256 })
    expect(gpt2.vocabularySize).toBe(50257)
    expect(gpt4.endOfText).toBe(100257)
    // tiktoken's n_vocab: every number of the encoding is below it.
    expect(gpt4.vocabularySize).toBe(100277)
    expect(Math.max(...Object.values(gpt4.specialTokens))).toBe(100276)
  })

  test('become their one number wherever they stand, if they are allowed', () => {
    // tiktoken: "hello world" is 31373, 995 in r50k_base.
    const text = 'hello world<|endoftext|>hello<|endoftext|><|endoftext|> world'
    const tokens = [31373, 995, 50256, 31373, 50256, 50256, 995]
    expect([...gpt2.encode(text, all)]).toEqual(tokens)
    expect([...gpt2.encode(text, { allowedSpecial: ['<|endoftext|>'] })]).toEqual(tokens)
    expect(gpt2.decode(tokens)).toBe(text)
    expect([...gpt2.encode('<|endoftext|>', all)]).toEqual([50256])
    // tiktoken: "hello world" is 15339, 1917 in cl100k_base.
    const filled = '<|fim_prefix|>hello<|fim_suffix|> world<|fim_middle|>'
    expect([...gpt4.encode(filled, all)]).toEqual([100258, 15339, 100260, 1917, 100259])
    expect(gpt4.decode(gpt4.encode(filled, all))).toBe(filled)
  })

  test('are refused otherwise, with the option that allows them', () => {
    expect(() => gpt2.encode('é🌍 end<|endoftext|>')).toThrow(
      refusal(
        'data.malformed',
        /contains the special token <\|endoftext\|> at character 6\. Allow it with encode\(text, \{ allowedSpecial: \['<\|endoftext\|>'\] \}\)/,
      ),
    )
    expect(() =>
      gpt4.encode('a<|endoftext|>b<|fim_middle|>', { allowedSpecial: ['<|endoftext|>'] }),
    ).toThrow(
      refusal('data.malformed', /contains the special token <\|fim_middle\|> at character 15/),
    )
    for (const name of ['<|fim_prefix|>', 'toString'])
      expect(() => gpt2.encode('a', { allowedSpecial: [name] })).toThrow(
        refusal('config.invalid', /special tokens of r50k_base \(<\|endoftext\|>\), got "/),
      )
    // Of cl100k_base alone: plain text to GPT-2.
    expect(gpt2.decode(gpt2.encode('<|fim_prefix|>'))).toBe('<|fim_prefix|>')
  })
})

test('texts come back as they were', () => {
  const texts = ['', ' ', 'Grüße, 世界 🌍\n', '\ufeffmark', 'a\r\n\t  b', "it's 12345 <|", '\u0000']
  for (const tokenizer of [gpt2, gpt4])
    for (const text of texts) expect(tokenizer.decode(tokenizer.encode(text))).toBe(text)
})

test('a cut character is U+FFFD, and is not carried into the next text', () => {
  const [first] = gpt2.encode('世')
  expect(gpt2.decode([first])).toBe('\ufffd')
  expect(gpt2.decode([31373])).toBe('hello')
})

test('numbers that are no tokens are refused', () => {
  for (const wrong of [50257, -1, 0.5, Number.NaN])
    expect(() => gpt2.decode([31373, wrong])).toThrow(
      refusal('data.malformed', /r50k_base\): expected a known token from 0 to 50256.*got/),
    )
  // Between the last byte pair and the first special token nothing has a number.
  expect(() => gpt4.decode([100256])).toThrow(refusal('data.malformed', /got 100256/))
  expect(() => CharTokenizer.of('ab').decode([2])).toThrow(
    refusal('data.malformed', /CharTokenizer: expected a known token from 0 to 1, got 2/),
  )
})
