import { describe, expect, test, vi } from 'vitest'
import { type CsvOptions, type CsvTable, readCsv } from '../../../src/data/csv.ts'
import { DataError } from '../../../src/util/errors.ts'
import { cpuMs } from '../../support/cpu-time.ts'

const iris = `sepal, petal,species
5.1,1.4,setosa
7.0,4.7,versicolor

6.3,6.0,virginica
5.0,"1.3",setosa
`

test('a table becomes samples: features and classes', async () => {
  const table = await readCsv(new Blob([iris]), 'iris.csv')
  expect(table.columns).toEqual(['sepal', 'petal', 'species'])
  expect(table.classes('species')).toEqual(['setosa', 'versicolor', 'virginica'])
  const samples = table.dataset({ label: 'species' })
  expect(samples.length).toBe(4)
  expect(samples.get(2)).toEqual({ x: { shape: [2], data: Float32Array.of(6.3, 6) }, y: 2 })
  const regression = table.dataset({ features: ['sepal'], target: 'petal' })
  expect(regression.get(3)).toEqual({
    x: { shape: [1], data: Float32Array.of(5) },
    y: { shape: [], data: Float32Array.of(1.3) },
  })
})

test('delimiters, quotes, line ends, no header', async () => {
  const table = await readCsv('a;"b ""c"";\nd"\r\n1;2\r\n', 'semi.csv', {
    header: false,
    delimiter: ';',
  })
  expect(table.records).toEqual([
    ['a', 'b "c";\nd'],
    ['1', '2'],
  ])
  expect((await readCsv('p\tq\n1\t2\n', 'tabs.csv')).columns).toEqual(['p', 'q'])
  expect((await readCsv('p\tq\n1\t\n', 'tabs.csv')).texts('q')).toEqual([''])
  expect((await readCsv('x\n1\n2\n', 'one.csv')).numbers('x')).toEqual(Float32Array.of(1, 2))
})

test('classes are numbered by number where all labels are numbers, else by text', async () => {
  const labels = [0, 2, 10, 1, 3, 9, 4, 8, 5, 7, 6, 10]
  const numbers = await readCsv(`x,y\n${labels.map((y) => `1,${y}`).join('\n')}\n`, 'digits.csv')
  expect(numbers.classes('y')).toEqual([...Array(11).keys()].map(String))
  const samples = numbers.dataset({ label: 'y' })
  expect(labels.map((_, i) => samples.get(i).y)).toEqual(labels)
  // As pandas reads a column of numbers: one class however it is written; negative ones first.
  const written = await readCsv('x,y\n1,1.0\n1,-2\n1, 1\n1,.5\n', 'numbers.csv')
  expect(written.classes('y')).toEqual(['-2', '.5', '1.0'])
  const mixed = await readCsv('x,y\n1,10\n1,9\n1,b\n1, 9 \n1,B\n', 'mixed.csv')
  expect(mixed.classes('y')).toEqual(['10', '9', 'B', 'b'])
  const targets = mixed.dataset({ features: ['x'], label: 'y' })
  expect([0, 1, 2, 3, 4].map((i) => targets.get(i).y)).toEqual([0, 1, 3, 1, 2])
})

test.each([
  [
    'whole numbers that f64 does not tell apart',
    ['9007199254740993', '9007199254740992', '1e400', '2e400'],
    ['1e400', '2e400', '9007199254740992', '9007199254740993'],
  ],
  [
    'a whole number that f64 may round',
    ['10', '9', '9007199254740993'],
    ['10', '9', '9007199254740993'],
  ],
  ['a number beyond f64', ['10', '9', '1e400'], ['10', '1e400', '9']],
  [
    'fractions that f64 rounds to one',
    ['0.1', '0.10000000000000001'],
    ['0.1', '0.10000000000000001'],
  ],
  ['numbers too small for f64', ['2', '10', '1e-400', '0'], ['0', '10', '1e-400', '2']],
])('distinct labels stay distinct: %s', async (_, labels, classes) => {
  const table = await readCsv(`x,y\n${labels.map((y) => `1,${y}`).join('\n')}\n`, 'ids.csv')
  expect(table.classes('y')).toEqual(classes)
  const samples = table.dataset({ label: 'y' })
  expect(labels.map((_, i) => samples.get(i).y)).toEqual(labels.map((y) => classes.indexOf(y)))
})

test('spellings of one number are one class', async () => {
  const spellings = ['1', '1.0', '+1', '01', '1.', '1e0', '10e-1', '.1E+1', '0.10e1']
  const labels = [...spellings, '-0', '0', '0e5', '-3', '9007199254740991', '9007199254740991.0']
  const table = await readCsv(`x,y\n${labels.map((y) => `1,${y}`).join('\n')}\n`, 'spelt.csv')
  expect(table.classes('y')).toEqual(['-3', '-0', '1', '9007199254740991'])
})

test('numbers as spreadsheets and Python write them', async () => {
  const written = ['-1', '+2.5', '.5', '3.', '1e3', '-2.5E-1', ' 7 ', '3.4e38', '1e-60']
  const table = await readCsv(`x,y\n${written.map((text) => `${text},1`).join('\n')}`, 'n.csv')
  expect(table.numbers('x')).toEqual(
    Float32Array.of(-1, 2.5, 0.5, 3, 1000, -0.25, 7, Math.fround(3.4e38), 0),
  )
})

test('whole numbers that f32 rounds are said once, by line and column', async () => {
  const said: string[] = []
  const console = vi.spyOn(globalThis.console, 'warn').mockImplementation((text) => said.push(text))
  const table = await readCsv('id,x\n1,0.1\n123456789012,16777216\n+16777217,2\n', 'ids.csv')
  expect([...table.numbers('id')]).toEqual([1, 123_456_790_528, 16_777_216])
  table.dataset()
  expect(said).toEqual([
    'ids.csv, line 3, column "id": 123456789012 is 123456790528 in f32, as 2 whole numbers of the column are rounded. If they are identifiers, leave the column out of features, or pass it as label.',
  ])
  console.mockRestore()
})

test('lines count as in an editor, whatever is between the records', async () => {
  const text = '\n\na,b\n"1\n\n",2\n\n3,4\n'
  for (const source of [text, text.replaceAll('\n', '\r\n'), text.replaceAll('\n', '\r')]) {
    const table = await readCsv(source, 'lines.csv')
    expect(table.lines).toEqual([4, 8])
    expect(table.numbers('a')).toEqual(Float32Array.of(1, 3))
  }
})

test.each([
  ['a header in CRLF over rows in LF', 'x,y\r\n1,2\n3,4\n'],
  ['one LF in CRLF', 'x,y\r\n1,2\n3,4\r\n'],
  ['a header in LF over rows in CRLF', 'x,y\n1,2\r\n3,4\r\n'],
  ['a header in CR over rows in LF', 'x,y\r1,2\n3,4\n'],
  ['quotes before CRLF among LF', '"x",y\n1,"2"\r\n3,4\n'],
])('records have mixed line ends: %s', async (_, text) => {
  const table = await readCsv(text, 'mixed.csv')
  expect([table.numbers('x'), table.numbers('y')]).toEqual([
    Float32Array.of(1, 3),
    Float32Array.of(2, 4),
  ])
  expect(table.lines).toEqual([2, 3])
})

test('line ends within quotes stay as they are, whatever ends the records', async () => {
  const table = await readCsv('a,b\r\n"1\r\n2",x\n"3\r""4\n",y\r\n5,"z"\n', 'quotes.csv')
  expect(table.texts('a')).toEqual(['1\r\n2', '3\r"4\n', '5'])
  expect(table.lines).toEqual([2, 4, 7])
})

test.each([';', '\t', ','])('a first line sep=%s of Excel is the delimiter', async (delimiter) => {
  const rows = [`sep=${delimiter}`, `a${delimiter}b`, `1${delimiter}"2"`]
  for (const text of [rows.join('\r\n'), `\ufeff${rows.join('\n')}`]) {
    const table = await readCsv(text, 'excel.csv')
    expect(table.columns).toEqual(['a', 'b'])
    expect(table.numbers('b')).toEqual(Float32Array.of(2))
    expect(table.lines).toEqual([3])
  }
})

describe('numbers as the options say', () => {
  const numbers = async (text: string, options: CsvOptions) =>
    (await readCsv(`x;y\n${text};a\n`, 'n.csv', { delimiter: ';', ...options })).numbers('x')[0]

  test.each<[string, CsvOptions, number]>([
    ['-1,5', { decimal: ',' }, -1.5],
    [',5e3', { decimal: ',' }, 500],
    ['1.234.567,25', { decimal: ',', thousands: '.' }, 1_234_567.25],
    ['1,234', { thousands: ',' }, 1234],
    ['+12,345.5', { thousands: ',' }, 12_345.5],
    ['1 234,5', { decimal: ',', thousands: ' ' }, 1234.5],
    ['7', { decimal: ',', thousands: '.' }, 7],
    ['NA', { missing: -1 }, -1],
    ['', { missing: 0 }, 0],
    ['null', { missing: Number.NaN }, Number.NaN],
  ])('%s', async (text, options, wanted) => {
    expect(await numbers(text, options)).toBe(Math.fround(wanted))
  })

  test.each<[string, CsvOptions, string]>([
    ['1,5', {}, 'got "1,5". Pass decimal: "," as the file means it, or correct the file.'],
    [
      '1,234',
      {},
      'got "1,234". Pass decimal: "," or thousands: "," as the file means it, or correct the file.',
    ],
    ['1.234,5', {}, 'got "1.234,5". Pass decimal: "," and thousands: "." as'],
    ["1'234.5", {}, `Pass thousands: "'" as`],
    ['1.5', { decimal: ',' }, 'got "1.5". Pass decimal: "." as'],
    ['1.2345', { decimal: ',', thousands: '.' }, 'Pass decimal: "." as'],
    ['12,34', { thousands: ',' }, 'got "12,34". Pass decimal: "," as'],
    ['1,', { thousands: ',' }, 'got "1,". Pass decimal: "," as'],
    ['NA', {}, 'expected a number, got "NA". Correct the file, pass missing: 0 for'],
    ['', {}, 'expected a number, got nothing. Correct the file, pass missing: 0 for'],
  ])('%s is refused with %j, by line, column and option', async (text, options, wanted) => {
    const refused = numbers(text, options)
    await expect(refused).rejects.toThrow('n.csv, line 2, column "x": expected a')
    await expect(refused).rejects.toThrow(wanted)
  })

  test('records with missing values are left out with missing: "skip"', async () => {
    const text = 'x,y\n1,a\nNA,b\n3,\n,c\n5,d\n'
    const table = await readCsv(text, 'n.csv', { missing: 'skip' })
    expect(table.numbers('x')).toEqual(Float32Array.of(1, 5))
    expect(table.classes('y')).toEqual(['a', 'd'])
    expect(table.lines).toEqual([2, 6])
  })

  test('a missing class is an error, and a text where it is kept', async () => {
    const numbered = await readCsv('x,y\n1,0\n1,1\n1,NA\n', 'n.csv')
    expect(() => numbered.classes('y')).toThrow(
      'n.csv, line 4, column "y": expected a class, got "NA". Correct the file, pass missing: "skip"',
    )
    const text = 'x,y\n1,DE\n1,NA\n'
    const table = await readCsv(text, 'n.csv')
    expect(() => table.classes('y')).toThrow(
      /line 3, column "y": expected a class, got "NA".*"keep"/,
    )
    const countries = await readCsv(text, 'n.csv', { missing: 'keep' })
    expect(countries.classes('y')).toEqual(['DE', 'NA'])
  })

  test('classes are numbers in the marks of the file', async () => {
    const table = await readCsv('x;y\n1;10\n1;9,5\n1;9,50\n', 'n.csv', { decimal: ',' })
    expect(table.classes('y')).toEqual(['9,5', '10'])
  })

  test.each([{ decimal: ';' }, { thousands: '' }, { thousands: '.' }, { missing: 'drop' }])(
    'readCsv refuses %j',
    async (options) => {
      await expect(readCsv('a\n1\n', 'n.csv', options as CsvOptions)).rejects.toMatchObject({
        code: 'config.invalid',
      })
    },
  )
})

describe('malformed', () => {
  const all = (table: CsvTable) => table.dataset()
  const cases: Record<
    string,
    [text: string | Blob, read: RegExp, use?: (table: CsvTable) => unknown]
  > = {
    'an unclosed quote': [
      'a,b\n1,2\n\n1,"2\n3,4\n',
      /^iris.csv, line 4: expected closed quotes, got .*unterminated/,
    ],
    'a short record': [
      'a,b\n\n1,2\n3\n',
      /^iris.csv, line 4: expected 2 fields as in line 1, got 1\. Correct/,
    ],
    'a long record': ['a,b\n1,2,3\n', /line 2: expected 2 fields as in line 1, got 3/],
    'a column twice': ['a,a\n1,2\n', /line 1: expected distinct column names, got "a"/],
    nothing: ['\n\n', /one record or more/],
    'other bytes': [new Blob([Uint8Array.of(0x61, 0xff, 0xfe)]), /UTF-8/],
    'no number': [
      'a,b\n1,2\n\n\n3,x\n',
      /^iris.csv, line 5, column "b": expected a decimal number, got "x"\. Correct/,
    ],
    'no value': ['a,b\n1,\n', /line 2, column "b": expected a number, got nothing/],
    'no value in one column': ['a\n1\n\n3\n', /line 3, column "a": expected a number, got nothing/],
    'an empty value in one column': ['a\n1\n""\n3\n', /line 3, column "a".*got nothing/],
    'more than f32 holds': ['a,b\n1,1e39\n', /line 2, column "b".*f32.*got 1e39/],
    hexadecimal: ['a,b\n1,0x10\n', /line 2, column "b".*decimal number, got "0x10"/],
    binary: ['a,b\n1,0b11\n', /line 2, column "b".*decimal number, got "0b11"/],
    infinity: ['a,b\n1,Infinity\n', /line 2, column "b".*got "Infinity"/],
    'no class': [
      'a,b\n1,cat\n2, \n',
      /^iris.csv, line 3, column "b": expected a class, got nothing/,
      (table) => table.dataset({ label: 'b' }),
    ],
    'no column': [
      'a,b\n1,2\n',
      /a column "c", got a, b/,
      (table) => table.dataset({ features: ['c'] }),
    ],
  }
  for (const [name, [text, expected, use = all]] of Object.entries(cases)) {
    test(name, async () => {
      await expect(readCsv(text, 'iris.csv').then(use)).rejects.toMatchObject({
        code: 'data.malformed',
        message: expect.stringMatching(expected),
      })
    })
  }

  test('a label and a target', async () => {
    const table = await readCsv(iris, 'iris.csv')
    expect(() => table.dataset({ label: 'species', target: 'petal' })).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringMatching(/label "species" and target "petal"\. Remove one/),
      }),
    )
  })
})

describe('hostile text of 1 MB reads in time that grows with its length', () => {
  const ofLength = (name: string, make: (n: number) => string) => [name, make] as const
  test.each([
    ofLength('mixed line ends', (n) => `a\n${`${'1'.repeat(97)}\r\n2\r`.repeat(n / 100)}`),
    ofLength('quotes that never close', (n) => `a\r\n${'"'.repeat(n + 1)}`),
    ofLength('groups of digits', (n) => `a\n${"1'234".repeat(n / 5)}`),
    ofLength('line ends before more text', (n) => `a\n1${'\n'.repeat(n)}x`),
    ofLength('digits before a letter', (n) => `a\n${'1'.repeat(n)}x`),
    ofLength('zeros before another digit', (n) => `a\n0.${'0'.repeat(n)}1`),
    ofLength('an exponent of many digits', (n) => `a\n1e-${'9'.repeat(n)}`),
    ofLength('many columns', (n) => `${Array.from({ length: n / 8 }, (_, i) => `c${i}`)}\n`),
  ])('%s', async (_, make) => {
    const read = async () => {
      const table = await readCsv(make(1e6), 'hostile.csv')
      table.numbers(table.columns[0])
      table.classes(table.columns[0])
      table.dataset()
    }
    const began = cpuMs()
    await read().catch((error) => {
      expect(error).toBeInstanceOf(DataError)
      expect(error.message.length).toBeLessThan(300)
    })
    // A quadratic expression takes half a minute or more.
    expect(cpuMs() - began).toBeLessThan(15_000)
  })
})

test('a path and a table without records are refused', async () => {
  for (const path of ['data/train.csv', 'https://example.org/a?b=1', 'C:\\my data\\a.tsv'])
    await expect(readCsv(path, 'train.csv')).rejects.toThrow(/^readCsv: source must be .* no path/)
  const table = await readCsv('a,b\n', 'n.csv')
  expect(() => table.dataset()).toThrow('n.csv: expected one record or more, got none besides')
})
