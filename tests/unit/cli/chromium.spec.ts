import { expect, test } from 'vitest'
import { installedPaths } from '../../../node/chromium.ts'

test('Windows: system folders come from the environment, and Chrome may be installed for one user', () => {
  const paths = installedPaths('win32', {
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

test('an environment without those folders leaves the usual ones, each once', () => {
  const paths = installedPaths('win32', { ProgramFiles: 'C:\\Program Files' })
  expect(paths).toHaveLength(4)
  expect(new Set(paths).size).toBe(4)
  expect(installedPaths('plan9', {})).toEqual([])
})
