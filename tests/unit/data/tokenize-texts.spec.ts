import { beforeAll, expect, test } from 'vitest'
import {
  type PretrainedTokenizer,
  readTokenizer,
} from '../../../src/data/language/pretrained-tokenizer.ts'
import { packParts, type TextDataset } from '../../../src/data/language/text-dataset.ts'
import { readTextTable } from '../../../src/data/language/text-table.ts'
import { type TextOptions, tokenizeTexts } from '../../../src/data/language/tokenize-texts.ts'
import { restoreDataset } from '../../../src/data/loader/restore.ts'
import { goldenTokenizers, tokenizerConfig } from '../../support/pretrained-folder.ts'

let tokenizer: PretrainedTokenizer
beforeAll(async () => {
  tokenizer = await readTokenizer({
    tokenizer: goldenTokenizers.tokenizer,
    config: tokenizerConfig,
  })
})

const fileOf = (name: string, text: string | Uint8Array<ArrayBuffer>) => new File([text], name)
const jsonl = (...rows: unknown[]) =>
  fileOf('train.jsonl', rows.map((row) => JSON.stringify(row)).join('\n'))
const tokenized = async (file: File, options: TextOptions) =>
  tokenizeTexts(await readTextTable(file), tokenizer, options)

/** The texts of a row, and of what has a loss in each. */
function shown(dataset: TextDataset, index = 0) {
  const { tokens, labels, positions, segments } = dataset.get(index)
  const texts: { text: string; learned: string }[] = []
  for (let i = 0; i < tokens.data.length && segments.data[i] >= 0; ) {
    const end = segments.data.lastIndexOf(segments.data[i]) + 1
    const own = tokens.data.slice(i, end)
    const learned = [...labels.data.slice(i, end)].filter((label) => label !== -100)
    expect([...positions.data.slice(i, end)]).toEqual([...own.keys()])
    texts.push({ text: tokenizer.decode(own), learned: tokenizer.decode(learned) })
    i = end
  }
  return texts
}

test('tokenizeTexts cuts one long text into windows that overlap by one token', async () => {
  const text = 'One tab is a rank, and several tabs train one network. '.repeat(8)
  const { train, heldOut, report } = await tokenized(fileOf('a.txt', text), {
    blockSize: 16,
    heldOut: 0.2,
  })
  const all = [train, heldOut!].flatMap((set) =>
    Array.from({ length: set.length }, (_, i) => [...set.get(i).tokens.data]),
  )
  const joined = all.flatMap((window, i) => (i === 0 ? window : window.slice(1)))
  expect(joined).toEqual([...tokenizer.encode(text)].slice(0, joined.length))
  expect(report.tokens - joined.length).toBeLessThan(15)
  expect(heldOut!.length).toBe(Math.round(all.length * 0.2))
  expect(report).toMatchObject({ texts: 1, rows: train.length, heldOutRows: heldOut!.length })
  const { labels, tokens } = train.get(1)
  expect([...labels.data]).toEqual([-100, ...tokens.data.slice(1)])
})

test('tokenizeTexts ends each text of a table, and has a loss on completions alone when there are prompts', async () => {
  const { train } = await tokenized(jsonl({ text: 'one' }, { text: 'two two' }), { blockSize: 8 })
  expect(shown(train)).toEqual([
    { text: 'one<|im_end|>', learned: expect.stringMatching(/<\|im_end\|>$/) },
  ])
  const rows = { prompt: 'The answer is', completion: ' a ring', other: 1 }
  const own = await tokenized(jsonl(rows), { blockSize: 16 })
  expect(shown(own.train)).toEqual([
    { text: 'The answer is a ring<|im_end|>', learned: ' a ring<|im_end|>' },
  ])
  const all = await tokenized(jsonl(rows), { blockSize: 16, completionOnlyLoss: false })
  const [{ text, learned }] = shown(all.train)
  // Without its first token, before which there is none.
  expect(text.endsWith(learned)).toBe(true)
  expect(learned.length).toBeGreaterThan(20)
})

const chat = [
  { role: 'system', content: 'Be short.' },
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello' },
  { role: 'user', content: 'Bye' },
  { role: 'assistant', content: 'Good bye' },
]

test('tokenizeTexts has a loss on what the assistant says alone when that is chosen', async () => {
  const { train } = await tokenized(jsonl({ messages: chat }), {
    blockSize: 200,
    assistantOnlyLoss: true,
  })
  const [{ text, learned }] = shown(train)
  expect(text).toBe(tokenizer.applyChatTemplate(chat))
  expect(learned).toBe('Hello<|im_end|>Good bye<|im_end|>')
  const asked = { prompt: chat.slice(0, 4), completion: chat.slice(4) }
  const prompted = await tokenized(jsonl(asked), { blockSize: 200 })
  expect(shown(prompted.train)[0].learned).toBe('Good bye<|im_end|>\n')
})

test('tokenizeTexts reads tables of CSV, and lists of JSON', async () => {
  const csv = `prompt,completion\n"a, b",c\nd,"e\nf"\n`
  const table = await readTextTable(fileOf('a.csv', csv))
  expect(table).toMatchObject({
    form: 'prompt',
    lines: [2, 3],
    rows: [
      { prompt: 'a, b', completion: 'c' },
      { prompt: 'd', completion: 'e\nf' },
    ],
  })
  const quoted = JSON.stringify(chat.slice(1, 3)).replaceAll('"', '""')
  const chats = await readTextTable(fileOf('a.csv', `id;messages\n1;"${quoted}"\n`))
  expect(chats.rows).toEqual([{ messages: chat.slice(1, 3) }])
  const list = await readTextTable(fileOf('a.json', JSON.stringify([{ text: 'a' }, { text: 'b' }])))
  expect(list).toMatchObject({ form: 'text', unit: 'row', lines: [1, 2] })
})

test('tokenizeTexts packs several texts into a row when that is chosen', async () => {
  const texts = ['a b c d e f', 'g', 'h i', 'j k l', 'm n']
  const rows = jsonl(...texts.map((text) => ({ text })))
  const { train, report } = await tokenized(rows, { blockSize: 16, packing: true })
  const all = Array.from({ length: train.length }, (_, i) => shown(train, i))
  const found = all.flat().map(({ text }) => text.replace('<|im_end|>', ''))
  expect(found.sort()).toEqual(texts)
  expect(train.length).toBeLessThan(texts.length)
  expect(report.rows).toBe(train.length)
  // Each text begins without a loss.
  const { labels, positions } = train.get(0)
  positions.data.forEach((position, i) => {
    if (position === 0) expect(labels.data[i]).toBe(-100)
  })
  expect(restoreDataset(train.describe())).toMatchObject({ length: train.length })
  expect((restoreDataset(train.describe()) as TextDataset).get(0)).toEqual(train.get(0))
})

test('packParts fills rows best, and keeps the order', () => {
  expect(packParts([6, 2, 3, 5, 4], 10)).toEqual([
    [0, 4],
    [1, 2, 3],
  ])
  expect(packParts([10, 10], 10)).toEqual([[0], [1]])
})

test('tokenizeTexts reports the lines of texts that are cut or left out', async () => {
  const long = 'word '.repeat(40)
  const { train, report } = await tokenized(
    jsonl(
      { prompt: 'a', completion: 'b' },
      { prompt: 'a', completion: long },
      { prompt: long, completion: 'b' },
    ),
    { blockSize: 12 },
  )
  expect(report).toMatchObject({ texts: 3, truncated: [2, 3], leftOut: [3], rows: 2 })
  expect(report.longest).toBeGreaterThan(40)
  expect(train.length).toBe(2)
})

test('tokenizeTexts holds out the same texts for a seed', async () => {
  const rows = Array.from({ length: 20 }, (_, i) => ({ text: `text ${i}` }))
  const split = async (seed: number) => {
    const { heldOut } = await tokenized(jsonl(...rows), { blockSize: 12, heldOut: 0.25, seed })
    return Array.from({ length: heldOut!.length }, (_, i) => shown(heldOut!, i)[0].text)
  }
  expect(await split(1)).toHaveLength(5)
  expect(await split(1)).toEqual(await split(1))
  expect(await split(1)).not.toEqual(await split(2))
})

test('tokenizeTexts rejects with the reason when it is aborted', async () => {
  const rows = Array.from({ length: 200 }, () => ({ text: 'a' }))
  const aborter = new AbortController()
  const onProgress = ({ done }: { done: number }) => {
    if (done >= 64) aborter.abort(new Error('enough'))
  }
  const run = tokenized(jsonl(...rows), { blockSize: 8, signal: aborter.signal, onProgress })
  await expect(run).rejects.toThrow('enough')
})

const latin1 = Uint8Array.from([...'caf\xe9'].map((letter) => letter.charCodeAt(0)))
const lines = (...parts: (string | Uint8Array<ArrayBuffer>)[]) => new File(parts, 'a.jsonl')

test.each<[string, () => File, string]>([
  [
    'a text is not UTF-8',
    () => new File(['one\n', latin1], 'a.txt'),
    'a.txt: expected UTF-8 text, got other bytes in line 2. Save the file as UTF-8.',
  ],
  [
    'a text is UTF-16',
    () => fileOf('a.txt', Uint8Array.of(0xff, 0xfe, 65, 0)),
    'a.txt: expected UTF-8 text, got UTF-16, by its first two bytes',
  ],
  [
    'a line is no JSON',
    () => lines('{"text":"a"}\n\n{"text":\n'),
    'a.jsonl, line 3: expected JSON, got {"text":',
  ],
  [
    'a row has another form',
    () => lines('{"text":"a"}\n{"texts":"b"}'),
    'a.jsonl, line 2: expected a text that is not empty, got text: undefined',
  ],
  [
    'a completion is empty',
    () => lines('{"prompt":"a","completion":""}'),
    'a.jsonl, line 1: expected a prompt and a completion, both texts that are not empty',
  ],
  [
    'a message has no role',
    () => lines('{"messages":[{"content":"a"}]}'),
    'a.jsonl, line 1: expected messages, a list of { role, content } with texts, got messages: a plain array of 1',
  ],
  [
    'no form is known',
    () => lines('{"instruction":"a","output":"b"}'),
    'a.jsonl, line 1: expected a row with text, with prompt and completion, or with messages, got instruction, output. Rename its fields.',
  ],
  [
    'a file has no rows',
    () => fileOf('a.json', '[]'),
    'a.json: expected one row or more, got none',
  ],
  [
    'a file is empty',
    () => fileOf('a.txt', ''),
    'a.txt: expected a file of text, got an empty file',
  ],
])('readTextTable names the place when %s', async (_, file, message) => {
  await expect(readTextTable(file())).rejects.toThrow(message)
})

test.each<[string, () => File, object, string]>([
  [
    'one row is to be held out of one',
    () => jsonl({ text: 'a' }),
    { heldOut: 0.1 },
    'train.jsonl: expected two rows or more, one of them held out, got 1 of 1. Add rows, or pass heldOut: 0.',
  ],
  [
    'a text is shorter than a window',
    () => fileOf('a.txt', 'a b'),
    {},
    'a.txt: expected text for 1 window of 8 tokens, got 2 tokens',
  ],
  [
    'no completion fits',
    () => jsonl({ prompt: 'word '.repeat(20), completion: 'b' }),
    {},
    'train.jsonl: expected a row with a loss within 8 tokens, got 0 of 1',
  ],
  [
    'rows have no assistant',
    () => jsonl({ text: 'a' }),
    { assistantOnlyLoss: true },
    'assistantOnlyLoss needs rows of messages, got the form "text"',
  ],
])('tokenizeTexts says what to change when %s', async (_, file, options, message) => {
  await expect(tokenized(file(), { blockSize: 8, ...options })).rejects.toThrow(message)
})
