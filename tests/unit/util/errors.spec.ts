import { join } from 'node:path'
import { build } from 'vite'
import { expect, test } from 'vitest'
import { device } from '../../../src/util/device.ts'
import {
  ArgumentTypeError,
  DataError,
  GpuError,
  ShapeError,
  stackOf,
  TabringError,
} from '../../../src/util/errors.ts'
import { checkOptions } from '../../../src/util/options.ts'
import * as library from '../../support/library.ts'
import { repository } from '../../support/repository.ts'

const wrongTypes: Record<string, () => unknown> = {
  'options that are a number': () =>
    checkOptions('dropout', 0.5 as unknown as { p?: number }, { p: true }),
  'no options at all': () =>
    checkOptions('dropout', null as unknown as { p?: number }, { p: true }),
  'a device that is true': () => device(true as unknown as string),
  'no device': () => device(null as unknown as string),
}

test.each(Object.entries(wrongTypes))('%s: a TypeError and a TabringError', (_, call) => {
  let thrown: unknown
  try {
    call()
  } catch (error) {
    thrown = error
  }
  expect(thrown).toBeInstanceOf(TypeError)
  expect(thrown).toBeInstanceOf(TabringError)
  expect(thrown).toMatchObject({ name: 'ArgumentTypeError', code: 'config.invalid' })
  expect((thrown as Error).message).toMatch(
    /^(dropout: expected|device: spec must be) .*, got .*\. /,
  )
})

test('a wrong value of the right type is no TypeError', () => {
  expect(() => device('cuda')).toThrow(TabringError)
  expect(() => device('cuda')).not.toThrow(TypeError)
  expect(() => checkOptions('dropout', { q: 1 } as { p?: number }, { p: true })).not.toThrow(
    TypeError,
  )
})

test('instanceof distinguishes the classes of errors', () => {
  const wrongType = new ArgumentTypeError('x')
  for (const other of [ShapeError, GpuError, DataError]) {
    expect(wrongType).not.toBeInstanceOf(other)
    expect(new other('config.invalid', 'x')).toBeInstanceOf(TabringError)
  }
  expect(new ShapeError('shape.mismatch', 'x')).not.toBeInstanceOf(GpuError)
  expect(new TabringError('config.invalid', 'x')).not.toBeInstanceOf(ShapeError)
  expect(new TabringError('config.invalid', 'x')).not.toBeInstanceOf(ArgumentTypeError)
  for (const foreign of [new Error('x'), new TypeError('x'), null, undefined, 'x'])
    expect(foreign).not.toBeInstanceOf(TabringError)
})

test('a stack is printed with those of its causes', () => {
  const inner = new TypeError('inner')
  const outer = new Error('outer', { cause: new RangeError('middle', { cause: inner }) })
  const stack = stackOf(outer)
  expect(stack.match(/^(cause: )?\w+: \w+$/gm)).toEqual([
    'Error: outer',
    'cause: RangeError: middle',
    'cause: TypeError: inner',
  ])
  expect(stack).toMatch(/^Error: outer\n +at /)
  // As Firefox and Safari have it.
  inner.stack = 'main@file.js:1:1'
  expect(stackOf(inner)).toBe('TypeError: inner\nmain@file.js:1:1')
  const other = new Error('x', { cause: 'no error' })
  expect(stackOf(other)).toBe(`${other.stack}\ncause: thrown: no error`)
  expect(stackOf(undefined)).toBe('thrown: undefined')
})

test.each([
  ['load', 'TypeError: load\nload@file.js:1:1'],
  ['', 'TypeError\nload@file.js:1:1'],
])('a stack of Firefox gets the words that it lacks: "%s"', (message, received) => {
  const error = new TypeError(message)
  error.stack = 'load@file.js:1:1'
  expect(stackOf(error)).toBe(received)
})

test('a stack of Chromium is printed unchanged when the error has no message', () => {
  const error = new Error()
  expect(stackOf(error)).toBe(error.stack)
})

test('causes in a circle are printed once each', () => {
  const first = new Error('first')
  const second = new Error('second', { cause: first })
  first.cause = second
  for (const error of [first, second]) error.stack = `Error: ${error.message}\n    at here`
  expect(stackOf(first)).toBe(
    'Error: first\n    at here\ncause: Error: second\n    at here\ncause: Error: first (see above)',
  )
  second.cause = second
  expect(stackOf(second)).toBe('Error: second\n    at here\ncause: Error: second (see above)')
})

test('an option that is null counts as left out, but for one that is true or false', () => {
  const known = { group: 'object', sizes: 'list', training: 'flag' } as const
  const given = { group: null, sizes: null, training: null }
  expect(() => checkOptions('dropout', given, known)).toThrow(
    'dropout: training must be true or false, got null',
  )
  expect(checkOptions('dropout', { ...given, training: true }, known).group).toBe(null)
})

/** Members of a file as a user's bundler minifies it. */
async function minified(file: string): Promise<Record<string, typeof DataError>> {
  const built = await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      minify: 'oxc',
      lib: { entry: join(repository, file), formats: ['es'] },
    },
  })
  const [{ output }] = built as { output: { code?: string }[] }[]
  return import(`data:text/javascript,${encodeURIComponent(output[0].code ?? '')}`)
}

test('errors have the names of their classes when a bundle is minified', async () => {
  const members = {
    ...(await minified('src/util/errors.ts')),
    ...(await minified('src/peer/room/refusals.ts')),
  }
  const classes = Object.entries(library).filter(
    ([, value]) => typeof value === 'function' && value.prototype instanceof Error,
  )
  expect(classes.length).toBeGreaterThan(8)
  for (const [name] of classes) {
    expect(new members[name]('config.invalid', 'x').name).toBe(name)
  }
})
