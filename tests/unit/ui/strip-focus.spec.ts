import { expect, it } from 'vitest'
import { ActGuard, isHeldKey, settleMs } from '../../../src/ui/status/strip-focus.ts'

it('buttons take clicks from the beginning on, and none right after a run began or ended', () => {
  const guard = new ActGuard(false)
  expect(guard.isOpen(false, 0)).toBe(true)
  expect(guard.isOpen(true, 1000)).toBe(false)
  expect(guard.isOpen(true, 1000 + settleMs - 1)).toBe(false)
  expect(guard.isOpen(true, 1000 + settleMs)).toBe(true)
  // A run that ends at once restarts the time.
  expect(guard.isOpen(false, 2000)).toBe(false)
  expect(guard.isOpen(true, 2400)).toBe(false)
  expect(guard.isOpen(true, 2600)).toBe(false)
  expect(guard.isOpen(true, 2400 + settleMs)).toBe(true)
})

it('only the first press of a held key is a click', () => {
  expect(isHeldKey({ key: 'Enter', repeat: false })).toBe(false)
  expect(isHeldKey({ key: 'Enter', repeat: true })).toBe(true)
  expect(isHeldKey({ key: ' ', repeat: true })).toBe(true)
  expect(isHeldKey({ key: 'Tab', repeat: true })).toBe(false)
})
