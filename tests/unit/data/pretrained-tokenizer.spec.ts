import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { readTokenizer } from '../../../src/data/language/pretrained-tokenizer.ts'
import { goldenTokenizers, tokenizerConfig } from '../../support/pretrained-folder.ts'
import { textsInScripts } from '../../support/texts-in-scripts.ts'

const { tokenizer: file, cases, hash } = goldenTokenizers
const read = (config: object = tokenizerConfig) => readTokenizer({ tokenizer: file, config })
const messages = [
  { role: 'user', content: 'hi' },
  { role: 'assistant', content: 'there' },
]

test("PretrainedTokenizer gives the tokens of Hugging Face's own tokenizers when texts are in 20 scripts", async () => {
  const tokenizer = await read()
  for (const { text, ids } of cases) {
    expect([...tokenizer.encode(text)]).toEqual(ids)
    expect(tokenizer.decode(ids)).toBe(text.normalize('NFC'))
  }
  const all = createHash('sha256')
  for (const text of textsInScripts(100)) all.update(`${tokenizer.encode(text).join()}\n`)
  expect(all.digest('hex')).toBe(hash)
})

test('PretrainedTokenizer adds the tokens that begin and end a text when the files say so', async () => {
  const bos = { bos_token: '<|im_start|>', add_bos_token: true, add_eos_token: true }
  const tokenizer = await read({ ...tokenizerConfig, ...bos })
  const plain = [...tokenizer.encode('a', { addSpecialTokens: false })]
  expect([...tokenizer.encode('a')]).toEqual([657, ...plain, 658])
  expect(tokenizer.decode([657, ...plain, 658])).toBe('<|im_start|>a<|im_end|>')
  expect(tokenizer.decode([657, ...plain, 658], { skipSpecialTokens: true })).toBe('a')
  expect([...(await read()).encode('a')]).toEqual(plain)
  const added = {
    ...file,
    post_processor: {
      type: 'TemplateProcessing',
      single: [
        { SpecialToken: { id: '<|im_start|>', type_id: 0 } },
        { Sequence: { id: 'A', type_id: 0 } },
      ],
      pair: [],
      special_tokens: {
        '<|im_start|>': { id: '<|im_start|>', ids: [657], tokens: ['<|im_start|>'] },
      },
    },
  }
  const templated = await readTokenizer({ tokenizer: added, config: tokenizerConfig })
  expect([...templated.encode('a')]).toEqual([657, ...plain])
  expect([...templated.encode('a', { addSpecialTokens: false })]).toEqual(plain)
})

test('PretrainedTokenizer writes a conversation as the template of the files does', async () => {
  const written = '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n'
  const one = await read()
  expect(one.applyChatTemplate(messages.slice(0, 1), { addGenerationPrompt: true })).toBe(written)
  const named = [
    { name: 'tool_use', template: 'x' },
    {
      name: 'default',
      template: '{{ bos_token }}{{ eos_token }}{{ messages[0].content }}{{ mood }}',
    },
  ]
  const several = await read({ ...tokenizerConfig, bos_token: '<s>', chat_template: named })
  expect(several.applyChatTemplate(messages, { variables: { mood: '!' } })).toBe('<s><|im_end|>hi!')
  const own = { tokenizer: file, config: tokenizerConfig, chatTemplate: 'file' }
  expect((await readTokenizer(own)).applyChatTemplate(messages)).toBe('file')
  const strict = await read({ chat_template: "{{ raise_exception('no system role') }}" })
  expect(() => strict.applyChatTemplate(messages)).toThrow(
    'applyChatTemplate: the chat template refuses these messages: no system role. Correct them.',
  )
  const none = await read({})
  expect(none.hasChatTemplate).toBe(false)
  expect(() => none.applyChatTemplate(messages)).toThrow('chat_template.jinja: the folder has none')
})

test('PretrainedTokenizer refuses what its files do not have', async () => {
  const tokenizer = await read()
  expect(() => tokenizer.decode([5000])).toThrow('expected a known token from 0 to 658, got 5000')
  const broken = (change: object) => readTokenizer({ tokenizer: { ...file, ...change } })
  await expect(broken({ model: undefined })).rejects.toThrow(
    'tokenizer.json: expected an object with a model',
  )
  await expect(broken({ pre_tokenizer: { type: 'Best' } })).rejects.toThrow(
    /^tokenizer.json: expected a tokenizer of known parts, got an error: .*Best/,
  )
  await expect(read({ chat_template: '{% if %}' })).rejects.toThrow(
    /^tokenizer_config.json: expected a chat template of known parts/,
  )
  const words = {
    ...file,
    normalizer: null,
    pre_tokenizer: null,
    model: { type: 'BPE', vocab: { a: 0 }, merges: [], unk_token: '<unk>' },
    added_tokens: [],
  }
  const small = await readTokenizer({ tokenizer: words })
  expect(() => small.encode('ab')).toThrow('expected characters of the vocabulary, got "<unk>"')
})
