import { expect, test } from 'vitest'
import { countGpus } from '../../../node/launch/devices.ts'
import { visibleNumbers } from '../../../src/util/visible-devices.ts'

/** Which devices count, by the rules of CUDA_VISIBLE_DEVICES. */

const adapters = [
  { name: 'fast', isSoftware: false },
  { name: 'saving', isSoftware: false },
  { name: 'swiftshader', isSoftware: true },
]

test.each<[string | null, number[], number]>([
  [null, [0, 1, 2], 2],
  ['', [], 0],
  ['-1', [], 0],
  ['0,9,1', [0], 1],
  ['0,-1,1', [0], 1],
  ['1,0', [1, 0], 2],
  ['2', [2], 0],
  ['2,1', [2, 1], 1],
])('visibleDevices %s', (visible, numbers, gpus) => {
  expect(visibleNumbers(visible, adapters.length)).toEqual(numbers)
  expect(countGpus(adapters, { visibleDevices: visible })).toBe(gpus)
})

test('an adapter counts as often as logicalDevices says', () => {
  expect(countGpus(adapters, { visibleDevices: null, logicalDevices: 2 })).toBe(4)
  expect(countGpus(adapters, { visibleDevices: '3,4', logicalDevices: 2 })).toBe(1)
})
