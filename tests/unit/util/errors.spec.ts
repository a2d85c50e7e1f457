import { expect, test } from 'vitest'
import { device } from '../../../src/util/device.ts'
import {
  ArgumentTypeError,
  DataError,
  GpuError,
  ShapeError,
  TabringError,
} from '../../../src/util/errors.ts'
import { checkOptions } from '../../../src/util/options.ts'

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
  expect((thrown as Error).message).toMatch(/^(dropout|device): expected .*, got .*\. /)
})

test('a wrong value of the right type is no TypeError', () => {
  expect(() => device('cuda')).toThrow(TabringError)
  expect(() => device('cuda')).not.toThrow(TypeError)
  expect(() => checkOptions('dropout', { q: 1 } as { p?: number }, { p: true })).not.toThrow(
    TypeError,
  )
})

test('the classes tell their own apart', () => {
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
