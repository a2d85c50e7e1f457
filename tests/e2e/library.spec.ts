import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { build } from 'vite'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { serve } from '../../node/serve.ts'
import { noticesFile } from '../../scripts/third-party-notices.ts'
import { launchBrowser } from '../support/launch-browser.ts'
import { packLibrary } from '../support/pack-library.ts'
import { repository } from '../support/repository.ts'

const run = promisify(execFile)
const tool = (...path: string[]) => join(repository, 'node_modules', ...path)

/** Someone else's project, with Tabring among its packages as npm would have packed and installed it. */
let project: string
let installed: string
beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'tabring-user-'))
  installed = join(project, 'node_modules', 'tabring')
  await mkdir(installed, { recursive: true })
  const archive = await packLibrary()
  await run('tar', ['-xzf', archive, '--strip-components=1', '-C', installed])
  await cp(join(import.meta.dirname, 'fixtures', 'library-user'), project, { recursive: true })
})
afterAll(() => rm(project, { recursive: true, force: true }))

test('its types are enough for a strict program', async () => {
  const flags =
    '--noEmit --strict --skipLibCheck false --target es2023 --module esnext --moduleResolution bundler'
  const args = [...flags.split(' '), '--lib', 'es2023,dom', 'page.ts', 'rank.ts']
  const received = await run(tool('.bin', 'tsc'), args, { cwd: project }).catch((error) => error)
  expect(received.stdout).toBe('')
})

test('a program in Node trains with several entry points, which share classes and functions', async () => {
  const { stdout } = await run(process.execPath, ['program.mjs'], { cwd: project })
  const { losses, shared } = JSON.parse(stdout)
  expect(losses.at(-1)).toBeLessThan(losses[0] - 0.05)
  expect(shared).toEqual([true, true, true])
})

// Its lib has no WebGPU, and its arrays have no type parameter.
test('its types name nothing that TypeScript 5.6 lacks', async () => {
  const names = await readdir(join(installed, 'dist-lib'), { recursive: true })
  const files = names.filter((name) => name.endsWith('.d.ts'))
  const texts = await Promise.all(
    files.map((name) => readFile(join(installed, 'dist-lib', name), 'utf8')),
  )
  const text = texts.join('\n')
  expect(text.match(/\w+Array<ArrayBuffer(Like)?>|ArrayBufferView<.*/g)).toBeNull()
  const used = new Set(text.match(/\bGPU[A-Z]\w+/g))
  const brought = [...text.matchAll(/interface (GPU\w+) \{\s*\}/g)].map(([, name]) => name)
  expect(used).toContain('GPUDevice')
  expect([...used].filter((name) => !brought.includes(name))).toEqual([])
})

test('each package whose code is in it has its notice there', async () => {
  const folder = join(installed, 'dist-lib')
  const names = await readdir(folder, { recursive: true })
  const packages = new Set<string>()
  for (const name of names.filter((name) => name.endsWith('.js.map'))) {
    const { sources } = JSON.parse(await readFile(join(folder, name), 'utf8'))
    for (const source of sources as string[]) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(source)
      if (found) packages.add(found[1])
    }
  }
  const known = ['@noble/hashes', 'fast-png', 'fflate', 'gpt-tokenizer', 'iobuffer', 'papaparse']
  expect([...packages]).toEqual(expect.arrayContaining(known))
  const notices = await readFile(join(folder, noticesFile), 'utf8')
  for (const name of packages) {
    const own = notices.split('-'.repeat(80)).find((part) => part.trim().startsWith(`${name} `))
    expect(own, name).toMatch(/\(\S+\)\n\n.*copyright.*permission/is)
  }
})

test('two workers of a bundled page train with it, as one alone does', async () => {
  await build({ root: project, configFile: false, logLevel: 'warn', build: { target: 'es2023' } })
  const served = await serve({ root: join(project, 'dist'), port: 0 })
  const browser = await launchBrowser()
  try {
    const page = await browser.newPage()
    await page.goto(served.localUrl)
    await page.waitForFunction('window.train')
    const [alone] = (await page.evaluate('train(1)')) as number[][]
    const [first, second] = (await page.evaluate('train(2)')) as number[][]
    expect(first).toHaveLength(5)
    expect(first[4]).toBeLessThan(first[0] - 0.05)
    expect(second).toEqual(first)
    first.forEach((loss, i) => {
      expect(Math.abs(loss / alone[i] - 1), `step ${i + 1}`).toBeLessThan(1e-5)
    })
  } finally {
    await browser.close()
    await served.close()
  }
})

test('its command prints the documentation that is packed with it', async () => {
  const command = join(installed, 'bin', 'tabring.js')
  const { stdout } = await run(process.execPath, [command, 'docs', 'get-started'])
  expect(stdout).toBe(await readFile(join(repository, 'docs', 'get-started.md'), 'utf8'))
})

test('its command runs a module of the project, with the packages that it asks for', async () => {
  const command = join(project, 'node_modules', 'tabring', 'bin', 'tabring.js')
  await writeFile(
    join(project, 'train.ts'),
    [
      "import { TabringError } from 'tabring'; import { env } from 'tabring/distributed'",
      'const size: number = Number(env.WORLD_SIZE)',
      "console.log('rank', env.RANK, 'of', size)",
      'function step(batch: { size: number }): void {',
      "  if (env.RANK === '1') throw new TabringError('data.missing', 'no batch of ' + batch.size)",
      '}',
      'step({ size: 7 })',
      'await new Promise(() => undefined)',
    ].join('\n'),
  )
  const launch = (...flags: string[]) =>
    run(process.execPath, [command, 'run', ...flags, 'train.ts'], { cwd: project }).catch(
      (error) => error,
    )
  expect((await launch()).stderr).toBe(
    'tabring: launcher: the packages vite and playwright are not installed. Run: npm install --save-dev vite playwright\n',
  )
  for (const name of ['playwright', 'vite', 'typescript']) {
    await symlink(tool(name), join(project, 'node_modules', name))
  }
  const { code, stdout, stderr } = await launch('--nproc-per-node=2', '--adapter=software')
  expect([code, stdout]).toEqual([1, expect.stringContaining('[1]: rank 1 of 2\n')])
  expect(stderr).toMatch(
    /^tabring: rank 1 failed first:\nTabringError: no batch of 7\n {4}at step \(train\.ts:5:\d+\)\n {4}at train\.ts:7:1\n$/,
  )
})
