import { afterEach, expect, test } from 'vitest'
import {
  type DeviceSpec,
  device,
  formatDevice,
  placedDevice,
  setCurrentDevice,
} from '../../../src/util/device.ts'

afterEach(() => setCurrentDevice(0))

test('every form of a device means the same', () => {
  const first = { type: 'webgpu', index: 0 }
  const second = { type: 'webgpu', index: 1 }
  for (const spec of ['webgpu:0', 0, first] as DeviceSpec[]) expect(device(spec)).toEqual(first)
  for (const spec of ['webgpu:1', 1, second] as DeviceSpec[]) expect(device(spec)).toEqual(second)
  expect(device('webgpu', 1)).toEqual(second)
  expect(formatDevice(device('cpu'))).toBe('cpu')
  expect(formatDevice(device({ type: 'cpu', index: 0 }))).toBe('cpu')
  expect(formatDevice(device('rank:2/reference'))).toBe('rank:2/reference')
  expect(formatDevice(device(1))).toBe('webgpu:1')
})

test('a device without index is the current one at each use, as torch.device("cuda")', () => {
  const current = device('webgpu')
  expect(current).toEqual({ type: 'webgpu' })
  expect(device({ type: 'webgpu' })).toEqual(current)
  expect(formatDevice(current)).toBe('webgpu')
  expect(placedDevice(current)).toEqual({ type: 'webgpu', index: 0 })
  setCurrentDevice(1)
  expect(placedDevice(current)).toEqual({ type: 'webgpu', index: 1 })
  expect(placedDevice('webgpu:0')).toEqual({ type: 'webgpu', index: 0 })
  expect(placedDevice('cpu')).toEqual({ type: 'cpu', index: 0 })
})

test.each([
  'cuda',
  'auto',
  'webgpu:',
  'webgpu:-1',
  'cpu:1',
  'reference:1',
  '',
  -1,
  1.5,
  { type: 'gpu' },
  null,
])('device(%j) is refused with the forms there are', (spec) => {
  expect(() => device(spec as DeviceSpec)).toThrow(
    /spec must be "webgpu", .* "reference" \(both without an index\), .*or none \(setDefaultDevice\(null\)\) for a GPU/,
  )
})

test('an index may be given only once', () => {
  expect(() => device('webgpu:1', 1)).toThrow(/got "webgpu:1" and 1/)
  expect(() => device(1, 1)).toThrow(/and 1/)
})
