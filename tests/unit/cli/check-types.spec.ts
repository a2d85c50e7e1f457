import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { checkTypes } from '../../../node/launch/check-types.ts'
import { messageOf } from '../../../src/util/errors.ts'
import { repository } from '../../support/repository.ts'

// The check that `tabring run` makes, with the real compiler on small projects.

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-types-'))
  await mkdir(join(folder, 'node_modules'))
})
afterEach(() => rm(folder, { recursive: true }))

/** Writes files by their path in the project; an object is JSON. */
async function write(files: Readonly<Record<string, string | object>>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    const text = typeof content === 'string' ? content : JSON.stringify(content)
    await writeFile(join(folder, name), text)
  }
}

const install = (name: string) =>
  symlink(join(repository, 'node_modules', name), join(folder, 'node_modules', name))

/** What the check says of `module`: its notes, and its error if it throws. */
async function check(
  module: string,
  signal = new AbortController().signal,
): Promise<{ notes: string[]; error: string | null }> {
  const notes: string[] = []
  const note = (line: string) => notes.push(line)
  try {
    await checkTypes(join(folder, module), { signal, note, folder })
    return { notes, error: null }
  } catch (thrown) {
    return { notes, error: messageOf(thrown) }
  }
}

const right = { notes: [], error: null }
const wrong = (places: string) => ({
  notes: [],
  error: `module: a type error:\n${places}\nCorrect the program, or run it anyway with --no-check.`,
})

describe('without a tsconfig.json', () => {
  beforeEach(() => install('typescript'))

  test('a module passes that awaits at its top level, uses the DOM and imports a file by its extension', async () => {
    await write({
      'train.ts':
        "import { rate } from './rate.ts'\nconst text: string = await (await fetch('/data/a')).text()\ndocument.title = text + rate",
      'rate.ts': 'export const rate: number = 0.1',
    })
    expect(await check('train.ts')).toEqual(right)
    expect(await readdir(join(folder, 'node_modules', '.cache', 'tabring'))).toEqual([])
  })

  test('a wrong type is named with its file, line and column, in an imported module too', async () => {
    await write({
      'train.ts': "import { rate } from './parts/rate.ts'\nexport default rate",
      'parts/rate.ts': "\n\nexport const rate: number = 'fast'",
      'unrelated.ts': "export const rate: number = 'never imported'",
    })
    expect(await check('train.ts')).toEqual(
      wrong("parts/rate.ts:3:14: TS2322: Type 'string' is not assignable to type 'number'."),
    )
  })

  test("a traced tensor in JavaScript's operators is an error, with the launcher's own library", async () => {
    await write({
      'train.ts':
        "import { compile, tensorType } from 'tabring'\nawait compile(({ x }) => {\n  if (x.sum() > 2) return { x }\n  return { x: x.mul(2) }\n}, { x: tensorType([2]) })",
    })
    expect(await check('train.ts')).toEqual(
      wrong("train.ts:3:7: TS2365: Operator '>' cannot be applied to types 'Tensor' and 'number'."),
    )
  })

  test('packages are not checked', async () => {
    await write({
      'train.ts': "import { rate } from 'some-package'\nexport default rate",
      'node_modules/some-package/package.json': { type: 'module', exports: './index.ts' },
      'node_modules/some-package/index.ts': "export const rate: number = 'fast'",
    })
    expect(await check('train.ts')).toEqual(right)
  })

  test('of many errors 20 lines are shown, with what explains them, and the others are counted', async () => {
    const line = 'const f: (a: { b: number }) => void = (a: { b: string }) => void a\n'
    const lines = Array.from({ length: 30 }, (_, n) => `const a${n}: number = ''`)
    await write({ 'train.ts': `export {}\n${line}${lines.join('\n')}` })
    const { error } = await check('train.ts')
    const received = error!.split('\n')
    expect(received[0]).toBe('module: 31 type errors:')
    expect(received[1]).toMatch(/^train\.ts:2:7: TS2322: /)
    expect(received[2]).toMatch(/^ {2}Types of parameters 'a' and 'a' are incompatible\.$/)
    expect(received.at(-2)).toMatch(/^and \d+ more$/)
    expect(received).toHaveLength(1 + 20 + 2)
  })

  test('JavaScript is not checked', async () => {
    await write({ 'train.js': "/** @type {number} */\nexport const rate = 'fast'" })
    expect(await check('train.js')).toEqual(right)
  })
})

describe('with a tsconfig.json', () => {
  beforeEach(() => install('typescript'))

  test('its options hold, those it extends too, and its declarations are known', async () => {
    await write({
      'base.json': { compilerOptions: { strict: false, paths: { '@/*': ['./src/*'] } } },
      'tsconfig.json': { extends: './base.json', include: ['src'] },
      'src/files.d.ts': "declare module '*.vec' { const values: number[]; export default values }",
      'src/train.ts':
        "import values from './a.vec'\nimport { half } from '@/half.ts'\nexport default half(values[0])",
      'src/half.ts': 'export const half = (x) => x / 2',
      'src/unrelated.ts': "export const rate: number = 'never imported'",
    })
    expect(await check('src/train.ts')).toEqual(right)
    await write({ 'base.json': { compilerOptions: { paths: { '@/*': ['./src/*'] } } } })
    await write({ 'tsconfig.json': { extends: './base.json', compilerOptions: { strict: true } } })
    expect(await check('src/train.ts')).toEqual(
      wrong("src/half.ts:1:22: TS7006: Parameter 'x' implicitly has an 'any' type."),
    )
  })

  test('what a project builds otherwise does not matter', async () => {
    await write({
      'tsconfig.json': {
        compilerOptions: {
          ...{ composite: true, rootDir: 'src', outDir: 'built', module: 'nodenext' },
          ...{ isolatedDeclarations: true, noUnusedLocals: true, target: 'es2022' },
        },
        include: ['src'],
      },
      'src/package.json': { type: 'commonjs' },
      'src/train.ts':
        "import { twice } from '../twice.ts'\nconst spare = 1\nawait twice(2)\nexport const x = () => [1]",
      'twice.ts': 'export const twice = async (x: number) => 2 * x',
    })
    expect(await check('src/train.ts')).toEqual(right)
    expect(await readdir(folder)).not.toContain('built')
  })

  test('a module passes that awaits at its top level when tsc --init has written the configuration', async () => {
    await write({
      'tsconfig.json': {
        compilerOptions: { target: 'es2016', module: 'commonjs', esModuleInterop: true },
      },
      'train.ts':
        'class Half {\n  readonly half = this.whole / 2\n  constructor(private readonly whole: number) {}\n}\nexport const { half } = await Promise.resolve(new Half(2))',
    })
    expect(await check('train.ts')).toEqual(right)
  })

  test('one that refers to others: that with the module decides', async () => {
    await write({
      'tsconfig.json': { files: [], references: [{ path: './node.json' }, { path: './app' }] },
      'node.json': { compilerOptions: { strict: true }, include: ['vite.config.ts'] },
      'app/tsconfig.json': { compilerOptions: { strict: false }, include: ['../src'] },
      'vite.config.ts': 'export default {}',
      'src/train.ts': 'export const half = (x) => x / 2',
    })
    expect(await check('src/train.ts')).toEqual(right)
  })

  test('what is wrong in it is a note: the module may run', async () => {
    await write({
      'tsconfig.json': { compilerOptions: { types: ['no-such-package'] } },
      'train.ts': 'export {}',
    })
    const { notes, error } = await check('train.ts')
    expect(error).toBeNull()
    expect(notes).toEqual([expect.stringMatching(/^types: .*no-such-package/)])
  })

  test('JavaScript is checked with checkJs', async () => {
    await write({
      'tsconfig.json': { compilerOptions: { checkJs: true, allowJs: true } },
      'train.js': "/** @type {number} */\nexport const rate = 'fast'",
    })
    expect(await check('train.js')).toEqual(
      wrong("train.js:2:14: TS2322: Type 'string' is not assignable to type 'number'."),
    )
    await write({ 'tsconfig.json': { compilerOptions: { allowJs: true } } })
    expect(await check('train.js')).toEqual(right)
  })
})

test('without TypeScript a note says how to get it, for TypeScript alone', async () => {
  await write({ 'train.ts': "const x: number = ''", 'train.mjs': '', 'tsconfig.json': {} })
  expect(await check('train.ts')).toEqual({
    notes: [
      'types are not checked, since the package typescript is not installed. Run: npm install --save-dev typescript',
    ],
    error: null,
  })
  expect(await check('train.mjs')).toEqual(right)
})

describe('a compiler that does not do its work', () => {
  const compiler = (lines: string) =>
    write({
      'train.ts': '',
      'node_modules/typescript/package.json': { type: 'module', bin: { tsc: './tsc.js' } },
      'node_modules/typescript/tsc.js': lines,
    })

  test('its exit code is a note', async () => {
    await compiler("console.log('out of memory')\nprocess.exit(9)")
    expect(await check('train.ts')).toEqual({
      notes: ['types are not checked: tsc ended with exit code 9'],
      error: null,
    })
  })

  test('Ctrl-C kills it and what it started', async () => {
    const pids: number[] = []
    const controller = new AbortController()
    const server = createServer((request) => {
      pids.push(Number(request.headers['x-pid']))
      if (pids.length === 2) controller.abort(new Error('interrupted'))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    await compiler(
      [
        "import { spawn } from 'node:child_process'",
        `fetch('http://127.0.0.1:${port}', { headers: { 'x-pid': String(process.pid) } })`,
        "if (process.argv[2] !== 'below') spawn(process.execPath, [process.argv[1], 'below'], { stdio: 'inherit' })",
      ].join('\n'),
    )
    // It ends when both processes have let go of its output.
    expect(await check('train.ts', controller.signal)).toEqual({ notes: [], error: 'interrupted' })
    expect(pids).toHaveLength(2)
    expect(await readdir(join(folder, 'node_modules', '.cache', 'tabring'))).toEqual([])
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
})

test('a note is printed when the project is not writable', async () => {
  await install('typescript')
  await write({ 'train.ts': '', 'node_modules/.cache': 'a file' })
  const { notes, error } = await check('train.ts')
  expect(error).toBeNull()
  expect(notes).toEqual([expect.stringMatching(/^types are not checked: .*\.cache/)])
  expect(await readFile(join(folder, 'node_modules', '.cache'), 'utf8')).toBe('a file')
})
