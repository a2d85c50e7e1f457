import { afterEach, expect, test, vi } from 'vitest'
import { troubleAhead, troubleOf } from '../../../src/ui/state/trouble.ts'
import { GpuError } from '../../../src/util/errors.ts'

afterEach(() => vi.unstubAllGlobals())

const page = { isSecureContext: true, hasGpu: false, origin: 'http://localhost', port: '' }
const agents = {
  firefoxOnLinux: 'Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0',
  firefoxOnAndroid: 'Mozilla/5.0 (Android 15; Mobile; rv:153.0) Gecko/153.0 Firefox/153.0',
  firefoxOnIntelMac:
    'Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:153.0) Gecko/20100101 Firefox/153.0',
  firefoxOnWindows: 'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Firefox/140.0',
  safari: 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.0 Safari/605.1.15',
  chromeOnIphone: 'Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) CriOS/156.0 Safari/604.1',
  chrome: 'Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36',
}

test.each([
  ['firefoxOnLinux', /dom\.webgpu\.enabled/, /gfx\.webgpu\.ignore-blocklist.*compute on the CPU/],
  ['firefoxOnAndroid', /Android has no WebGPU: use Chrome/, /about:support/],
  ['firefoxOnIntelMac', /^In about:config set dom\.webgpu\.enabled/, /about:support/],
  ['firefoxOnWindows', /141 on Windows/, /about:support/],
  ['safari', /macOS 26/, /Restart/],
  ['chromeOnIphone', /iOS 26/, /Restart/],
  ['chrome', /chrome:\/\/flags\/#enable-unsafe-webgpu/, /chrome:\/\/gpu/],
] as const)('cards name what helps in this browser: %s', (name, missing, adapter) => {
  vi.stubGlobal('navigator', { userAgent: agents[name] })
  expect(troubleAhead(page)?.remedies.join(' ')).toMatch(missing)
  const none = new GpuError('gpu.unavailable', 'device: offers no adapter')
  const { remedies } = troubleOf(none)
  expect(remedies.join(' ')).toMatch(adapter)
  if (name !== 'chrome') expect(remedies.join(' ')).not.toContain('chrome://')
})
