import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { buildProgram } from '../../../node/launch/build-program.ts'

// What `tabring run` builds of a module, without a browser.

const own = vi.hoisted(() => ({ folder: '' }))
vi.mock('../../../node/launch/own-files.ts', async (importOriginal) => {
  const files = await importOriginal<typeof import('../../../node/launch/own-files.ts')>()
  return {
    ...files,
    get rankPage() {
      return own.folder ? join(own.folder, 'rank.js') : files.rankPage
    },
  }
})

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-build-'))
})
afterEach(() => {
  own.folder = ''
  return rm(folder, { recursive: true })
})

test.each(['C#', 'why?'])(
  'a module finds its files and workers when its folder is named %s',
  async (name) => {
    const project = join(folder, name)
    await mkdir(join(project, 'below'), { recursive: true })
    const files = {
      'table.csv': 'a,b',
      'worker.ts': "postMessage('from the worker')",
      'below/train.ts': [
        "import text from '../table.csv?raw'",
        "new Worker(new URL('../worker.ts', import.meta.url), { type: 'module' })",
        'console.log(process.env.DATA_ROOT)',
        "export default [text, new URL('../table.csv', import.meta.url).href]",
      ].join('\n'),
      'below/wrong.ts': "import './missing.ts'",
    }
    for (const [file, text] of Object.entries(files)) await writeFile(join(project, file), text)
    const built = await buildProgram(join(project, 'below', 'train.ts'), project)
    try {
      expect([...built.reads]).toEqual(['DATA_ROOT'])
      const assets = await readdir(join(built.root, 'assets'))
      const texts = await Promise.all(
        assets
          .filter((asset) => asset.endsWith('.js'))
          .map((asset) => readFile(join(built.root, 'assets', asset), 'utf8')),
      )
      expect(texts.join()).toContain('from the worker')
      expect(texts.join()).toContain('"a,b"')
      expect(texts.join()).toContain('data:text/csv')
    } finally {
      await built.remove()
    }
    await expect(buildProgram(join(project, 'below', 'wrong.ts'), project)).rejects.toThrow(
      join(name, 'below', 'wrong.ts'),
    )
  },
)

test('a module builds when the launcher is installed in a folder named with a ?', async () => {
  own.folder = join(folder, 'why?', 'launch')
  await mkdir(own.folder, { recursive: true })
  await writeFile(join(own.folder, 'rank.js'), "import 'virtual:tabring-program'")
  await writeFile(join(folder, 'train.ts'), "console.log('trained')")
  const built = await buildProgram(join(folder, 'train.ts'), folder)
  try {
    expect(await readFile(join(built.root, 'rank.js'), 'utf8')).toContain('trained')
  } finally {
    await built.remove()
  }
})
