import { expect, test } from 'vitest'
import { type DeviceSpec, device, formatDevice } from '../../../src/util/device.ts'

test('every form of a device means the same', () => {
  const first = { type: 'webgpu', index: 0 }
  const second = { type: 'webgpu', index: 1 }
  for (const spec of ['webgpu', 'webgpu:0', 0, { type: 'webgpu' }, first] as DeviceSpec[]) {
    expect(device(spec)).toEqual(first)
  }
  for (const spec of ['webgpu:1', 1, second] as DeviceSpec[]) expect(device(spec)).toEqual(second)
  expect(device('webgpu', 1)).toEqual(second)
  expect(formatDevice(device('cpu'))).toBe('cpu')
  expect(formatDevice(device({ type: 'cpu', index: 0 }))).toBe('cpu')
  expect(formatDevice(device(1))).toBe('webgpu:1')
})

test.each(['cuda', 'webgpu:', 'webgpu:-1', 'cpu:1', '', -1, 1.5, { type: 'gpu' }, null])(
  'device(%j) is refused with the forms there are',
  (spec) => {
    expect(() => device(spec as DeviceSpec)).toThrow(/expected "webgpu", "webgpu:<index>", "cpu"/)
  },
)

test('an index is given once', () => {
  expect(() => device('webgpu:1', 1)).toThrow(/got "webgpu:1" and 1/)
  expect(() => device(1, 1)).toThrow(/and 1/)
})
