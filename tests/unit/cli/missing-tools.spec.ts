import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { requireTools } from '../../../node/launch/import-tool.ts'

// What the command says before it does anything.

const both = ['vite', 'playwright'] as const

const root = join(import.meta.dirname, '../../..')

const installed =
  (...names: string[]) =>
  async (name: string) => {
    if (!names.includes(name))
      throw Object.assign(new Error('none'), { code: 'ERR_MODULE_NOT_FOUND' })
  }

test.each([
  [
    [],
    'packages vite and playwright are not installed. Run: npm install --save-dev vite playwright',
  ],
  [['vite'], 'package playwright is not installed. Run: npm install --save-dev playwright'],
  [
    ['vite', 'playwright-core'],
    'package playwright is not installed. playwright-core is installed, but playwright itself is needed. Run: npm install --save-dev playwright',
  ],
])('with %s the packages that are missing are named at once', async (names, text) => {
  await expect(requireTools(both, installed(...names))).rejects.toThrow(`launcher: the ${text}`)
})

test('with all packages nothing is said, and Firefox needs no Playwright', async () => {
  await requireTools(both, installed('vite', 'playwright'))
  await requireTools(['vite'], installed('vite'))
})

test('--version prints the version of the package', async () => {
  const command = join(root, 'bin', 'tabring.js')
  const { stdout } = await promisify(execFile)(process.execPath, [command, '--version'])
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  expect(stdout.trim()).toBe(version)
})
