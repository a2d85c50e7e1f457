import { afterEach, expect, test, vi } from 'vitest'
import { parseOptions } from '../../../node/train/options.ts'
import { parseExact } from '../../../scripts/exact/options.ts'
import { differencesOf, tableOf } from '../../../scripts/exact/table.ts'

afterEach(() => vi.restoreAllMocks())

const parse = (line: string) => parseExact(line.split(' ').filter(Boolean))
const namesIn = (line: string) =>
  parse(line).rows.map(({ model, optimizer }) => `${model} ${optimizer}`)
const flagsIn = (line: string) => parse(line).rows.map(({ flags }) => flags.join(' '))

test('npm run exact without flags trains the MLP by AdamW in 1, 2 and 3 tabs', () => {
  expect(parse('')).toEqual({
    tabs: [1, 2, 3],
    rows: [
      {
        model: 'mlp',
        optimizer: 'adamw',
        flags: ['--demo', 'digits', '--model', 'mlp', '--optimizer', 'adamw'],
      },
    ],
    compare: false,
    isChurn: false,
    seedOfChurn: 1,
  })
})

test.each([
  ['--model mlp,gpt --optimizer sgd', ['mlp sgd', 'gpt sgd']],
  ['--model cnn,cnn', ['cnn adamw']],
  ['--demo playground --optimizer adamw,sgd', ['tanh adamw', 'tanh sgd']],
  [
    '--model all --optimizer all',
    [
      ...['mlp adamw', 'mlp sgd', 'cnn adamw', 'cnn sgd'],
      ...['cnn-bn adamw', 'cnn-bn sgd', 'gpt adamw', 'gpt sgd'],
    ],
  ],
])('npm run exact %s trains %j', (line, names) => {
  expect(namesIn(line)).toEqual(names)
})

test('npm run exact finds the demo of a model, and passes the flags of npm run train on', () => {
  expect(flagsIn('--model gpt --steps 3 --seed=7')).toEqual([
    '--demo text --model gpt --optimizer adamw --steps 3 --seed=7',
  ])
  expect(flagsIn('--demo playground --model relu')).toEqual([
    '--demo playground --model relu --optimizer adamw',
  ])
})

test('npm run exact gives each of several models the data of its demo', () => {
  expect(flagsIn('--model cnn,gpt --data some/dir --data-file a.txt')).toEqual([
    '--demo digits --model cnn --data some/dir --optimizer adamw',
    '--demo text --model gpt --data-file a.txt --optimizer adamw',
  ])
  expect(flagsIn('--model gpt --data story')).toEqual([
    '--demo text --model gpt --data story --optimizer adamw',
  ])
})

test('npm run train accepts the flags of every row of npm run exact --model all --optimizer all', () => {
  for (const { model, optimizer, flags } of parse('--model all --optimizer all').rows) {
    const parsed = parseOptions(['--exact', ...flags], {})
    expect(parsed).toMatchObject({ options: { config: { model, optimizer, exact: true } } })
  }
})

test('npm run train names the model where no demo has one of npm run exact', () => {
  const [{ flags }] = parse('--model transformer').rows
  expect(() => parseOptions([...flags], {})).toThrow(/model: expected .*got transformer/)
})

test.each([
  ['--tabs 0', 'Expected whole numbers from 1'],
  ['--churn --model all', '--churn plays one model with one optimizer. Choose one of each.'],
])('npm run exact %s is refused', (line, words) => {
  const said: unknown[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(text) > 0)
  vi.spyOn(process, 'exit').mockImplementation(() => {
    throw new Error('exits')
  })
  expect(() => parse(line)).toThrow('exits')
  expect(said.join('')).toContain(words)
})

const row = (...runs: [tabs: number, ...hashes: string[]][]) => ({
  model: 'cnn',
  optimizer: 'sgd',
  runs: runs.map(([tabs, ...hashes]) => ({ tabs, hashes })),
  seconds: 12.4,
})

test('the table says in which numbers of tabs the runs of a row agree', () => {
  const lines = tableOf([
    row([1, 'aa'], [2, 'aa', 'aa']),
    row([1, 'aa'], [2, 'aa', 'bb'], [3, 'cc', 'cc', 'cc'], [4, 'aa', 'aa', 'aa', 'aa']),
  ]).split('\n')
  expect(lines.slice(2)).toEqual([
    '| cnn | sgd | aa | 1, 2 | none | 12 |',
    '| cnn | sgd | aa | 1, 4 | 2, 3 | 12 |',
  ])
})

test('a row whose runs differ has a line that names them', () => {
  expect(differencesOf([row([1, 'aa'], [2, 'aa', 'aa'])])).toEqual([])
  expect(differencesOf([row([1, 'aa'], [2, 'aa', 'bb']), row([1, 'dd'])])).toEqual([
    'cnn with sgd ends with aa in one tab, but with aa,bb in 2 tabs. This is a defect, or the adapters differ.',
  ])
})

test('a run without hashes agrees with nothing', () => {
  expect(differencesOf([row([1, 'aa'], [2])])).toHaveLength(1)
})
