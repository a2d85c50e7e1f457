import { afterEach, expect, test, vi } from 'vitest'
import type { Runtime } from '../../../src/graph/memory/runtime.ts'
import { environmentOf } from '../../../src/graph/tune/tune-store.ts'

afterEach(() => vi.unstubAllGlobals())

/** What `environmentOf` reads of a device. */
const device = (vendor: string, isSoftware: boolean) => {
  const facts = { vendor, architecture: '', description: '' }
  return { gpu: { facts }, limits: { isSoftware } } as Runtime
}

test('environmentOf distinguishes adapters that the browser does not name', () => {
  vi.stubGlobal('navigator', { userAgent: 'Firefox/153.0' })
  const software = environmentOf(device('', true))
  expect(environmentOf(device('', false))).not.toBe(software)
  expect(software).toContain('Firefox/153.0')
  expect(environmentOf(device('nvidia', false))).toBe('nvidia   Firefox/153.0')
})
