import { expect, test } from 'vitest'
import { chosenBrowser, findChosen, installedPaths } from '../../../node/browser-choice.ts'
import { launchForTraining } from '../../../node/training-browser.ts'
import { hasVulkanGpu } from '../../../node/vulkan.ts'

test('Windows: system folders come from the environment, and Chrome may be installed for one user', () => {
  const paths = installedPaths('chromium', 'win32', {
    ProgramFiles: 'D:\\Programme',
    'ProgramFiles(x86)': 'D:\\Programme (x86)',
    LOCALAPPDATA: 'C:\\Users\\ada\\AppData\\Local',
  })
  for (const folder of [
    'D:\\Programme',
    'D:\\Programme (x86)',
    'C:\\Users\\ada\\AppData\\Local',
    'C:\\Program Files',
  ]) {
    expect(paths).toContain(`${folder}\\Google\\Chrome\\Application\\chrome.exe`)
  }
  // Chrome goes before Chromium wherever it is.
  expect(paths.findIndex((path) => path.includes('Chromium'))).toBe(paths.length / 2)
})

test('--browser of a name that is no browser says which names are', () => {
  expect(() => findChosen(chosenBrowser('netscape', {}))).toThrow(
    '--browser names netscape, which does not exist. Use chromium, firefox, or the path of a browser.',
  )
})

test('an environment without those folders leaves the usual ones, each once', () => {
  const paths = installedPaths('chromium', 'win32', { ProgramFiles: 'C:\\Program Files' })
  expect(paths).toHaveLength(4)
  expect(new Set(paths).size).toBe(4)
  expect(installedPaths('chromium', 'plan9', {})).toEqual([])
})

test('hasVulkanGpu needs a device and a driver for it', () => {
  const machine = (folders: Readonly<Record<string, string[]>>) => (folder: string) =>
    folders[folder] ?? []
  const mesa = { '/usr/share/vulkan/icd.d': ['intel_icd.x86_64.json', 'lvp_icd.x86_64.json'] }
  const nvidia = { '/dev': ['null', 'nvidia0', 'nvidiactl'] }
  const dri = { '/dev/dri': ['by-path', 'card0', 'renderD128'] }
  expect(hasVulkanGpu({}, machine({ ...mesa, ...dri }))).toBe(true)
  expect(hasVulkanGpu({}, machine({ ...nvidia, '/etc/vulkan/icd.d': ['nvidia_icd.json'] }))).toBe(
    true,
  )
  expect(hasVulkanGpu({ VK_DRIVER_FILES: '/opt/nvidia_icd.json' }, machine(nvidia))).toBe(true)
  expect(hasVulkanGpu({}, machine(mesa))).toBe(false)
  expect(hasVulkanGpu({}, machine(nvidia))).toBe(false)
  const onlyLavapipe = { ...dri, '/usr/share/vulkan/icd.d': ['lvp_icd.x86_64.json'] }
  expect(hasVulkanGpu({}, machine(onlyLavapipe))).toBe(false)
  expect(hasVulkanGpu({}, machine({ '/dev': ['nvidiactl'], ...mesa }))).toBe(false)
})

test('a browser that does not start says what to do without a display', async () => {
  const started = (isHeaded: boolean) =>
    launchForTraining('software', { isHeaded, timesKernels: false, path: '/bin/false' }, String)
  await expect(started(true)).rejects.toThrow(/false did not start: .* omit --headed, or start/)
  await expect(started(false)).rejects.toThrow(/false did not start: .* Set TABRING_BROWSER to/)
})
