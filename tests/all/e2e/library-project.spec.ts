import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePort } from '../../support/free-port.ts'
import { packLibrary } from '../../support/pack-library.ts'
import { repository } from '../../support/repository.ts'

// docs/guides/library.md in an empty folder, with the package as npm packs and installs it.

/** The files that a page shows, by name. */
async function filesOfPage(path = 'guides/library.md'): Promise<[name: string, text: string][]> {
  const page = await readFile(join(repository, 'docs', path), 'utf8')
  const blocks = page.matchAll(/^`([\w.]+)`:\n\n```\w+\n([\s\S]*?)^```/gm)
  return [...blocks].map(([, name, text]) => [name, text])
}

/** A user's environment: without what vitest has set. */
const { NODE_ENV, ...environment } = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST')),
)

let project: string
const inProject = (file: string, ...args: string[]) =>
  promisify(execFile)(file, args, { cwd: project, env: environment, maxBuffer: 1e8 })

/** Playwright's result of a test. */
interface Report {
  status: string
  errors: { message: string }[]
  annotations: { type: string; description?: string }[]
  stdout: { text: string }[]
  stderr: { text: string }[]
}

/** Runs the project's Playwright tests; gives the exit code and each test's result by its title. */
async function playwright(
  ...args: string[]
): Promise<{ code: number; received: Map<string, Report> }> {
  const done = await inProject('npx', 'playwright', 'test', '--reporter=json', ...args).catch(
    (error) => error,
  )
  const received = new Map<string, Report>()
  const { suites, errors } = JSON.parse(done.stdout)
  expect(errors).toEqual([])
  for (const { specs } of suites) {
    for (const { title, tests } of specs) received.set(title, tests[0].results[0])
  }
  return { code: done.code ?? 0, received }
}

const messages = (received: Report) => received.errors.map(({ message }) => message)
const text = (pieces: { text: string }[]) => pieces.map((piece) => piece.text).join('')

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'tabring-project-'))
  await inProject('npm', 'init', '--yes')
  await inProject('npm', 'pkg', 'set', 'type=module')
  const archive = await packLibrary()
  await inProject('npm', 'install', '--offline', '--no-audit', '--no-fund', archive)
  // What the page's first install gets from the registry.
  for (const name of ['vite', 'playwright', 'typescript', '@types/node', '.bin/vite', '.bin/tsc']) {
    const path = join(project, 'node_modules', name)
    await mkdir(dirname(path), { recursive: true })
    await symlink(join(repository, 'node_modules', name), path)
  }
  await symlink(
    join(repository, 'node_modules', '.bin', 'playwright'),
    join(project, 'node_modules', '.bin', 'playwright'),
  )
  await cp(join(repository, 'tests', 'e2e', 'fixtures', 'library-project'), project, {
    recursive: true,
  })
  const port = String(await freePort())
  const files = await filesOfPage()
  for (const [name, content] of files) {
    await writeFile(join(project, name), content.replaceAll('4173', port))
  }
  const config = join(project, 'failing.config.ts')
  await writeFile(config, (await readFile(config, 'utf8')).replaceAll('4173', port))
})
afterAll(() => rm(project, { recursive: true, force: true }))

test('the module is of 27 lines at most beside its imports, and the types are whole', async () => {
  const files = new Map(await filesOfPage())
  expect([...files.keys()].sort()).toEqual([
    'index.html',
    'main.ts',
    'playwright.config.ts',
    'train.spec.ts',
    'vite.config.ts',
  ])
  const lines = files.get('main.ts')!.trimEnd().split('\n')
  expect(lines.filter((line) => !line.startsWith('import ')).length).toBeLessThanOrEqual(27)
  const flags =
    '--noEmit --strict --skipLibCheck false --target es2023 --module esnext --moduleResolution bundler --lib es2023,dom --types node'
  const own = [...files.keys(), 'types.ts', 'failing.config.ts', 'workers.spec.ts']
  const sources = own.filter((name) => name.endsWith('.ts'))
  const received = await inProject('npx', 'tsc', ...flags.split(' '), ...sources).catch(
    (error) => error,
  )
  expect(received.stdout).toBe('')
})

test('what is built trains on two ranks, which end with the same model', async () => {
  const { code, received } = await playwright('train.spec.ts')
  expect([...received.values()].flatMap(messages)).toEqual([])
  expect([code, [...received.values()].map(({ status }) => status)]).toEqual([0, ['passed']])
})

test.each([
  ['get-started.md', [], 'rank 1 of 2: loss '],
  ['guides/own-module.md', ['--epochs', '2'], '[0]: epoch 2: loss '],
])('the module of docs/%s trains on two tabs', async (page, args, line) => {
  const [text] = (await filesOfPage(page)).flatMap(([name, text]) =>
    name === 'train.ts' ? [text] : [],
  )
  await writeFile(join(project, 'train.ts'), text)
  const flags = ['--nproc-per-node=2', '--adapter=software', '--checkpoint-dir=runs']
  const { stdout } = await inProject('npx', 'tabring', 'run', ...flags, 'train.ts', ...args)
  expect(stdout).toContain(line)
})

test('the dev server does too, and failures are reported by name', async () => {
  const { code, received } = await playwright('--config=failing.config.ts')
  expect(code).toBe(1)
  const statuses = Object.fromEntries([...received].map(([title, { status }]) => [title, status]))
  expect(statuses).toEqual({
    'two ranks learn, and end with the same model': 'passed',
    'ranks in workers of tabs of one browser': 'passed',
    'no adapter comes up': 'failed',
    'no adapter comes up, so it is skipped': 'skipped',
    'so is the next one in the same worker': 'skipped',
    'an error in a page': 'failed',
    'an error in a worker, which the test does not wait for': 'failed',
    'a page that does not join': 'timedOut',
  })
  const [noAdapter] = messages(received.get('no adapter comes up')!)
  expect(noAdapter).toMatch(
    /no WebGPU adapter came up \(wanted: the software adapter \(SwiftShader\)\)\.\n {2}\/.+: requestAdapter\(\) returned null\n {4}with .*--disable-background-timer-throttling .*\n {4}without --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader\nRemove the omitted flags/,
  )
  expect(received.get('no adapter comes up, so it is skipped')!.annotations).toEqual([
    expect.objectContaining({
      type: 'skip',
      description: expect.stringMatching(/^tabring\/playwright: no WebGPU adapter came up /),
    }),
  ])
  const inPage = received.get('an error in a page')!
  expect(messages(inPage)).toEqual([
    expect.stringMatching(/rank 1 failed first:\nRangeError: thrown in a page\n/),
  ])
  expect(text(inPage.stderr)).toContain('[1]: two\n[1]: lines\n')
  expect(messages(received.get('an error in a worker, which the test does not wait for')!)).toEqual(
    [expect.stringMatching(/rank 0 failed first:\nError: thrown in a worker\n/)],
  )
  expect(messages(received.get('a page that does not join')!).join('\n')).toContain(
    'ranks.open: ranks 0, 1 of 2 did not join before the test timed out.',
  )
})
