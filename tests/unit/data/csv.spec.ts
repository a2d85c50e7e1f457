import { describe, expect, test } from 'vitest'
import { readCsv } from '../../../src/data/csv.ts'

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

describe('malformed', () => {
  const cases: Record<string, [text: string | Blob, read: RegExp]> = {
    'an unclosed quote': ['a,b\n1,"2\n3,4\n', /iris.csv: expected closed quotes.*record 2/],
    'a short record': ['a,b\n1,2\n3\n', /2 fields in record 3.*got 1/],
    'a long record': ['a,b\n1,2,3\n', /2 fields in record 2.*got 3/],
    'a column twice': ['a,a\n1,2\n', /distinct column names, got "a"/],
    nothing: ['', /one record or more/],
    'other bytes': [new Blob([Uint8Array.of(0x61, 0xff, 0xfe)]), /UTF-8/],
    'no number': ['a,b\n1,2\n3,x\n', /number in column "b" of record 3, got "x"/],
    'no value': ['a,b\n1,\n', /number in column "b" of record 2, got nothing/],
    'no column': ['a,b\n1,2\n', /a column "c", got a, b/],
  }
  for (const [name, [text, expected]] of Object.entries(cases)) {
    test(name, async () => {
      const read = readCsv(text, 'iris.csv').then((table) => {
        table.dataset({ features: name === 'no column' ? ['c'] : undefined })
      })
      await expect(read).rejects.toMatchObject({
        code: 'data.malformed',
        message: expect.stringMatching(expected),
      })
    })
  }
})
