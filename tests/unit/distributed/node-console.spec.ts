import { Console } from 'node:console'
import { PassThrough } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { printAsNode } from '../../../src/distributed/launcher/node-console.ts'

// A rank's console against that of Node.

/** What Node prints, without the last line's end. */
function printedByNode(call: (console: Console) => void): string {
  const stream = new PassThrough({ encoding: 'utf8' })
  call(new Console(stream, stream) as typeof console)
  return ((stream.read() as string | null) ?? '').replace(/\n$/, '')
}

/** What a tab's console gets, as one text a call. */
function printedByRank(call: (console: Console) => void): string {
  const lines: string[] = []
  const take = (text: string) => void lines.push(text)
  const names = ['log', 'info', 'debug', 'warn', 'error', 'trace', 'group'] as const
  const own = Object.fromEntries(names.map((name) => [name, take]))
  const tab = { ...own, groupEnd: () => undefined } as unknown as typeof console
  printAsNode(tab)
  call(tab)
  return lines.join('\n')
}

class Point {
  x = 1
  #hidden = 2
  get sum() {
    return this.x + this.#hidden
  }
}
const ring: Record<string, unknown> = { name: 'ring' }
ring.self = ring
const error = Object.assign(new RangeError('too far', { cause: new TypeError('why') }), { code: 7 })
// Node marks promises while an async hook is on, which another spec of this worker may have left.
const pending = new Promise(() => undefined)
for (const key of Object.getOwnPropertySymbols(pending)) Reflect.deleteProperty(pending, key)
const values: unknown[] = [
  ...['text', '', 1.5, -0, NaN, 10n, true, null, undefined, Symbol('s'), /x/g, new Date(0)],
  ...[
    [1, 2, [3, [4, [5]]]],
    new Array(200).fill(0),
    { a: { b: { c: { d: 1 } } } },
    ['text', "it's"],
  ],
  ...[new Float32Array([1.5, 2]), new Uint8Array(300), new Map([[{ a: 1 }, [1]]])],
  ...[new Set(['a']), pending, () => 1, class A extends Point {}, new Point(), ring, error],
]
const rows = [
  { a: 1, b: 'x' },
  { a: 22, c: [1, 2] },
]

test.each<[string, (console: Console) => void]>([
  ...values.map((value, i): [string, (console: Console) => void] => [
    `value ${i}`,
    (console) => console.log(value, 'in a list', [value], { value }),
  ]),
  [
    'formats',
    (console) =>
      console.warn('%s is %d, %i, %f, %j, %o, %O %c%%', 'x', 1.5, 2, 3, [4], [5], [6], 'css'),
  ],
  ['rest', (console) => console.error('50% of', { a: 1 }, 'b')],
  ['nothing', (console) => console.log()],
  ['dir', (console) => console.dir({ a: { b: { c: 1 } } }, { depth: 0 })],
  ['assert', (console) => console.assert(false, 'got %d', 1, { a: 1 })],
  ['assert alone', (console) => console.assert(false)],
  ['assert of what is true', (console) => console.assert(true, 'never')],
  [
    'groups',
    (console) => {
      console.group('outer', 1)
      console.log('two\nlines')
      console.group()
      console.table([1])
      console.groupEnd()
      console.groupEnd()
      console.groupEnd()
      console.log('out')
    },
  ],
  ['table', (console) => console.table(rows)],
  ['table of some', (console) => console.table(rows, ['b', 'z'])],
  ['table of plain values', (console) => console.table(['a', 1, [2, 3], { a: { b: 1 } }])],
  [
    'table of an object',
    (console) => console.table({ loss: [0.5, 0.25], steps: { a: 1, b: 2, c: {} } }),
  ],
  ['table of a typed array', (console) => console.table(new Float32Array([1, 2]))],
  ['table of a map', (console) => console.table(new Map([['a', { b: 1 }]]))],
  ['table of a set', (console) => console.table(new Set([1, 'a']))],
  ['table of nothing', (console) => console.table([])],
  ['table of a number', (console) => console.table(5)],
])('the console prints what Node prints: %s', (_, call) => {
  expect(printedByRank(call)).toBe(printedByNode(call))
})

test('a trace has its text and begins at its caller', () => {
  const text = printedByRank((console) => console.trace('at %d', 1))
  expect(text).toMatch(/^Trace: at 1\n +at .*node-console\.spec\.ts/)
})

test('a trace begins where it was called in Firefox too', () => {
  const stack = 'trace@console.js:1:1\nload@file.js:2:2\n'
  class FirefoxError extends Error {
    override stack = stack
  }
  vi.stubGlobal('Error', FirefoxError)
  const text = printedByRank((console) => console.trace())
  vi.unstubAllGlobals()
  expect(text).toBe('Trace\nload@file.js:2:2')
})
