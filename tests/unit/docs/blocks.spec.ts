import { execFile, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { setDefaultDevice } from '../../../src/index.ts'
import { cpuProgram, moduleOf } from '../../support/docs-blocks.ts'
import { preambles } from '../../support/docs-preambles.ts'
import { type CodeBlock, exists, userPages } from '../../support/markdown.ts'
import { repository } from '../../support/repository.ts'

// Every code block of README.md, CONTRIBUTING.md and docs/ is checked. Commands are in commands.spec.ts.

/** Languages whose blocks are data or output: nothing to run. */
const shown = ['text', 'html', 'json']

/** Programs that do not run here, by a part of their text, and why. All are type-checked. */
const elsewhere: readonly [page: string, part: string, why: string][] = [
  ['docs/get-started.md', 'joins the two tabs', 'tests/all/e2e/library-project.spec.ts runs it'],
  ['docs/guides/own-module.md', 'args.includes', 'tests/all/e2e/library-project.spec.ts runs it'],
  ['docs/guides/library.md', 'document.body', 'tests/all/e2e/library-project.spec.ts runs it'],
  ['docs/guides/split.md', 'class ToyModel', 'tests/gpu/split.spec.ts trains it'],
  ['docs/guides/split.md', 'Schedule1F1B', 'tests/gpu/split.spec.ts trains one like it'],
  ['docs/guides/split.md', 'fullyShard(model)', 'tests/gpu/fully-shard.spec.ts trains one like it'],
  ['docs/guides/split.md', 'new DataParallel', 'tests/gpu/split.spec.ts trains one like it'],
  ['docs/reference/launching.md', 'export default async function main', 'a launcher calls it'],
]

const blocks = userPages().flatMap((page) => page.blocks)
const at = ({ page, line }: CodeBlock) => `${page}:${line}`
const inLanguage = (language: string) => blocks.filter((block) => block.language === language)
const modules = inLanguage('ts').map((block) => ({
  name: at(block),
  block,
  ...moduleOf(block, preambles[block.page] ?? ''),
}))
const isElsewhere = ({ page, text }: CodeBlock) =>
  elsewhere.some(([where, part]) => where === page && text.includes(part))
const programs = modules.filter(({ isProgram, block }) => isProgram && !isElsewhere(block))

/** Below the root, so that packages are found. */
let folder: string
beforeAll(() => {
  const parent = join(repository, 'test-results')
  mkdirSync(parent, { recursive: true })
  folder = mkdtempSync(join(parent, 'docs-blocks-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))
afterEach(() => {
  vi.restoreAllMocks()
})

test('every block is in a language that is checked', () => {
  const known = ['ts', 'sh', 'python', ...shown, null]
  const unknown = blocks.filter(({ language }) => !known.includes(language))
  expect(unknown.map((block) => `${at(block)}: ${block.language}`)).toEqual([])
  expect(modules.length).toBeGreaterThan(20)
})

test('every ts block type-checks', { timeout: 60_000 }, async () => {
  const files = modules.map(({ name, source }) => {
    const file = `${name.replaceAll(/[/:]/g, '_')}.ts`
    writeFileSync(join(folder, file), source)
    return file
  })
  const library = { tabring: 'src/index.ts', 'tabring/vite': 'node/vite-plugin.ts' }
  const paths = { ...library, 'tabring/playwright': 'node/playwright/index.ts' }
  const config = {
    extends: join(repository, 'tsconfig.json'),
    compilerOptions: {
      // What `strict` has, and no more: a user's choice.
      noUncheckedIndexedAccess: false,
      noUnusedLocals: false,
      noUnusedParameters: false,
      paths: Object.fromEntries(
        Object.entries(paths).map(([name, path]) => [name, [join(repository, path)]]),
      ),
    },
    files,
    include: [join(repository, 'src/**/*.d.ts')],
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  const tsc = join(repository, 'node_modules/.bin/tsc')
  const told = await promisify(execFile)(tsc, ['-p', folder]).catch((error) => error)
  expect(told.stdout).toBe('')
})

test('what is left out is there, and would be run otherwise', () => {
  const stale = elsewhere.filter(
    ([page, part]) =>
      !modules.some(
        ({ isProgram, block }) => isProgram && block.page === page && block.text.includes(part),
      ),
  )
  expect(stale).toEqual([])
  const specs = elsewhere.flatMap(([, , why]) => why.match(/tests\/\S+/g) ?? [])
  expect(specs.length).toBeGreaterThan(0)
  expect(specs.filter((path) => !exists(path))).toEqual([])
  expect(programs.length).toBeGreaterThan(0)
})

// The programs choose the CPU for this worker's other specs too.
afterEach(() => setDefaultDevice('webgpu:0'))

test.each(programs)('$name runs on the CPU', { timeout: 60_000 }, async ({ name, block }) => {
  const file = join(folder, `run_${name.replaceAll(/[/:]/g, '_')}.ts`)
  writeFileSync(file, cpuProgram(block))
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined)
  await import(/* @vite-ignore */ file)
  expect(log.mock.calls.flat().length).toBeGreaterThan(0)
  expect(log.mock.calls.flat().join(' ')).not.toMatch(/NaN|Infinity|undefined/)
})

test('every python block compiles', ({ skip }) => {
  const sources = inLanguage('python').map((block) => [at(block), block.text])
  expect(sources.length).toBeGreaterThan(0)
  const code =
    'import json, sys\nfor name, text in json.load(sys.stdin): compile(text, name, "exec")'
  const { error, status, stderr } = spawnSync('python3', ['-c', code], {
    input: JSON.stringify(sources),
    encoding: 'utf8',
  })
  if (error) skip('no python3 here')
  expect([status, stderr]).toEqual([0, ''])
})

test('every json block is JSON', () => {
  for (const { text } of inLanguage('json')) JSON.parse(text)
})
