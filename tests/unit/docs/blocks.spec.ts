import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { secretPrefix, serveWritable } from '../../../node/writable-folders.ts'
import { entries } from '../../../scripts/entries.ts'
import * as distributed from '../../../src/entries/distributed.ts'
import { destroyProcessGroup, newRoomUrl } from '../../../src/entries/distributed.ts'
import { setDefaultDevice } from '../../../src/entries/index.ts'
import { moduleOf, onCpu } from '../../support/docs-blocks.ts'
import { preambles } from '../../support/docs-preambles.ts'
import { docsPrograms } from '../../support/docs-programs.ts'
import { type CodeBlock, exists, userPages } from '../../support/markdown.ts'
import { repository } from '../../support/repository.ts'
import { socketFrom } from '../../support/signal-socket.ts'
import { StoreServer } from '../../support/store-server.ts'

// Every code block of README.md, CONTRIBUTING.md and docs/ is checked. Commands are in commands.spec.ts.

/** Languages whose blocks are data or output: nothing to run. */
const shown = ['text', 'html', 'json']

/** Files that do not run here, and the spec that runs them as they stand. All are type-checked. */
const elsewhere: readonly [page: string, file: string, spec: string][] = [
  ...docsPrograms.flatMap(({ page, files }) =>
    files.map((file): [string, string, string] => [
      page,
      file,
      'tests/all/e2e/docs-programs.spec.ts',
    ]),
  ),
  ...[
    ['docs/get-started.md', 'train.ts'],
    ['docs/guides/own-module.md', 'train.ts'],
    ['docs/guides/library.md', 'vite.config.ts'],
    ['docs/guides/library.md', 'main.ts'],
    ['docs/guides/library.md', 'playwright.config.ts'],
    ['docs/guides/library.md', 'train.spec.ts'],
  ].map(([page, file]): [string, string, string] => [
    page,
    file,
    'tests/all/e2e/library-project.spec.ts',
  ]),
]

const blocks = userPages().flatMap((page) => page.blocks)
const at = ({ page, line }: CodeBlock) => `${page}:${line}`
const inLanguage = (language: string) => blocks.filter((block) => block.language === language)
const modules = inLanguage('ts').map((block) => ({
  name: at(block),
  block,
  source: moduleOf(block, preambles[block.page] ?? ''),
}))
const isElsewhere = ({ page, file }: CodeBlock) =>
  elsewhere.some(([where, name]) => where === page && name === file)
const here = modules.filter(({ block }) => !isElsewhere(block))

/** Below the root, so that packages are found. */
let folder: string
/** What a launcher gives a rank: a folder for checkpoints, over HTTP; and a server for stores. */
let launcher: Server
let signaling: StoreServer
const prefix = secretPrefix('checkpoints')
beforeAll(async () => {
  const parent = join(repository, 'test-results')
  mkdirSync(parent, { recursive: true })
  folder = mkdtempSync(join(parent, 'docs-blocks-'))
  const respond = serveWritable({ [prefix]: folder })
  launcher = createServer((request, response) =>
    respond(request, response, () => response.writeHead(404).end()),
  )
  launcher.listen(0, '127.0.0.1')
  await once(launcher, 'listening')
  signaling = await StoreServer.start()
})
afterAll(async () => {
  await signaling.close()
  launcher.closeAllConnections()
  launcher.close()
  rmSync(folder, { recursive: true, force: true })
})
beforeEach(() => {
  const { port } = launcher.address() as AddressInfo
  vi.stubEnv('CHECKPOINT_URL', `http://127.0.0.1:${port}${prefix}`)
  vi.stubEnv('RANK', '0')
  vi.stubEnv('STORE_URL', newRoomUrl(signaling.address))
  vi.stubGlobal('WebSocket', socketFrom(signaling.origin))
})
afterEach(async () => {
  if (distributed.isInitialized()) await destroyProcessGroup()
  rmSync(join(folder, 'checkpoints.json'), { force: true })
  // The blocks choose the CPU; specs of the same worker count on the choice of the machine.
  setDefaultDevice(null)
  vi.unstubAllEnvs()
  vi.unstubAllGlobals()
  vi.restoreAllMocks()
})

test('every block is in a language that is checked', () => {
  const known = ['ts', 'sh', 'python', ...shown, null]
  const unknown = blocks.filter(({ language }) => !known.includes(language))
  expect(unknown.map((block) => `${at(block)}: ${block.language}`)).toEqual([])
  expect(modules.length).toBeGreaterThan(20)
})

test('every ts block type-checks', { timeout: 60_000 }, async () => {
  const files = modules.map(({ block, source }) => {
    // A page's files may import each other.
    const parent = block.page.replaceAll('/', '_')
    const file = join(parent, block.file ?? `line-${block.line}.ts`)
    mkdirSync(join(folder, parent), { recursive: true })
    writeFileSync(join(folder, file), source)
    return file
  })
  // The types that users get: without what is marked internal.
  await Promise.all([
    tsc('-p', 'tsconfig.lib.json', '--outDir', join(folder, 'types')),
    tsc('-p', 'tsconfig.launch.json', '--outDir', join(folder, 'launch')),
  ])
  const paths = {
    ...Object.fromEntries(
      entries.map(({ specifier, file }) => [specifier, file.replace('src/', 'types/')]),
    ),
    'tabring/vite': 'launch/node/vite-plugin.ts',
    'tabring/playwright': 'launch/node/playwright/index.ts',
  }
  const config = {
    extends: join(repository, 'tsconfig.json'),
    compilerOptions: {
      // What `strict` has, and no more: a user's choice.
      noUncheckedIndexedAccess: false,
      noUnusedLocals: false,
      noUnusedParameters: false,
      paths: Object.fromEntries(
        Object.entries(paths).map(([name, path]) => [
          name,
          [join(folder, path.replace('.ts', '.d.ts'))],
        ]),
      ),
    },
    files,
    include: [join(repository, 'src/**/*.d.ts')],
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  expect(await tsc('-p', folder)).toBe('')
})

/** What the compiler prints: nothing where all is well. */
async function tsc(...args: readonly string[]): Promise<string> {
  const command = join(repository, 'node_modules/.bin/tsc')
  const options = { cwd: repository }
  return (await promisify(execFile)(command, args, options).catch((error) => error)).stdout
}

test('a file that runs elsewhere is on its page, and its spec exists', () => {
  const missing = elsewhere.filter(
    ([page, file]) => !modules.some(({ block }) => block.page === page && block.file === file),
  )
  expect(missing).toEqual([])
  expect(elsewhere.filter(([, , spec]) => !exists(spec))).toEqual([])
  expect(here.length).toBeGreaterThan(10)
})

test.each(here)('$name runs on the CPU', { timeout: 60_000 }, async ({ name, block, source }) => {
  const file = join(folder, `run_${name.replaceAll(/[/:]/g, '_')}.ts`)
  writeFileSync(file, onCpu(source))
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined)
  await import(/* @vite-ignore */ file)
  if (block.text.includes('console.log')) expect(log).toHaveBeenCalled()
  expect(log.mock.calls.flat().join(' ')).not.toMatch(/NaN|Infinity|undefined/)
})

test('every python block ran in PyTorch as it stands, but for the names of GPUs', () => {
  const ran: { page: string; text: string; keys: string[] }[] = JSON.parse(
    readFileSync(join(repository, 'tests/golden/docs-blocks.json'), 'utf8'),
  )
  const texts = inLanguage('python').map(({ page, text }) => [page, text])
  expect(ran.map(({ page, text }) => [`docs/${page}`, text])).toEqual(texts)
  expect(ran.map(({ keys }) => keys[0])).toEqual([
    '0.weight',
    '0.weight',
    'net1.weight',
    'net1.weight',
    'module.0.weight',
    'module.0.weight',
  ])
})

test('every json block is JSON', () => {
  for (const { text } of inLanguage('json')) JSON.parse(text)
})
