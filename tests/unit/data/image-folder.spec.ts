import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { serveMounts } from '../../../node/mounts.ts'
import { listDirectory, listEntries, listServed } from '../../../src/data/folder.ts'
import { ImageFolder } from '../../../src/data/image-folder.ts'

const file = (path: string) => ({ path, source: new Blob() })
/** What a call writes to the console. */
function warningsOf(call: () => unknown): string[] {
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  call()
  const lines = warn.mock.calls.map(([line]) => line)
  warn.mockRestore()
  return lines
}

describe('an image folder', () => {
  test('says how many files are left out, by their endings', () => {
    const names = ['1.png', '1.tif', '2.TIF', '3.ppm', 'notes', '.hidden', 'x/2.JPEG']
    const files = [file('labels.csv'), ...names.map((name) => file(`a/${name}`))]
    expect(warningsOf(() => expect(new ImageFolder(files).length).toBe(2))).toEqual([
      'ImageFolder: 6 of 8 files are left out: 2 .tif, 2 without an ending, 1 in no class folder, 1 .ppm. Images have the endings .png, .jpg, .jpeg, .webp, .gif, .bmp and .avif; convert others to PNG.',
    ])
    expect(warningsOf(() => new ImageFolder([file('a/1.png')]))).toEqual([])
  })

  test('says it also of a class with no other files', () => {
    const files = [file('a/1.png'), file('b/1.tif')]
    const [line] = warningsOf(() => expect(() => new ImageFolder(files)).toThrow('got none in b'))
    expect(line).toContain('1 of 2 files are left out: 1 .tif.')
  })

  test('says it once, not again in every worker', () => {
    const lines = warningsOf(() => {
      const folder = new ImageFolder([file('a/1.png'), file('a/2.tif')])
      expect(ImageFolder.restore(folder.describe() as never).length).toBe(1)
    })
    expect(lines).toHaveLength(1)
  })

  test('refuses a class folder without files, however it is listed', async () => {
    const handle = (kind: string, children: object = {}) => ({
      kind,
      entries: async function* () {
        yield* Object.entries(children)
      },
    })
    const picked = handle('directory', {
      ant: handle('directory', { '1.png': handle('file') }),
      cow: handle('directory', { sub: handle('directory') }),
    })
    const entry = (name: string, children?: object[]) => ({
      name,
      isFile: !children,
      isDirectory: Boolean(children),
      file: (done: (file: File) => void) => done(new File([], name)),
      createReader: () => ({
        readEntries: (done: (some: object[]) => void) => done(children!.splice(0)),
      }),
    })
    const dropped = () => [entry('ant', [entry('1.png')]), entry('cow', [entry('sub', [])])]
    const listings = [
      await listDirectory(picked as never),
      await listEntries([entry('top', dropped())] as never),
      await listEntries(dropped() as never),
    ]
    for (const files of listings) {
      expect(files.map(({ path }) => path)).toEqual(['ant/1.png'])
      expect(files.emptyFolders).toEqual(['cow/sub'])
      expect(() => new ImageFolder(files)).toThrow(
        'ImageFolder: expected one folder per class with images in it, got none in cow.',
      )
    }
  })
})

describe('a served folder with links', () => {
  let top: string
  let base: string
  let said: string[]
  const server = createServer((request, response) => mounted(request, response, () => undefined))
  let mounted: ReturnType<typeof serveMounts>

  beforeAll(async () => {
    top = await mkdtemp(join(tmpdir(), 'tabring-links-'))
    const [data, elsewhere] = [join(top, 'data'), join(top, 'elsewhere')]
    for (const name of ['ant/1.png', 'bee/1.png', 'bee/sub/2.png', '.cache/3.png'])
      await mkdir(join(data, name, '..'), { recursive: true }).then(() =>
        writeFile(join(data, name), name),
      )
    await mkdir(elsewhere)
    await writeFile(join(elsewhere, 'secret.png'), 'secret')
    const links = {
      'ant/near.png': join(data, 'bee', 'sub', '2.png'),
      'ant/more': join(data, 'bee', 'sub'),
      'ant/far.png': join(elsewhere, 'secret.png'),
      'ant/hidden.png': join(data, '.cache', '3.png'),
      'ant/nowhere.png': join(data, 'nothing'),
      'ant/around': join(data, 'ant'),
      'bee/back': join(data, 'dog'),
      dog: join(data, 'bee'),
      cow: elsewhere,
    }
    for (const [name, target] of Object.entries(links)) await symlink(target, join(data, name))
    said = []
    mounted = serveMounts({ '/data/': data }, (line) => said.push(line))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/data/`
  })
  afterAll(async () => {
    server.close()
    await rm(top, { recursive: true })
  })

  test('lists the targets of links inside it, and names links that lead elsewhere', async () => {
    const files = await listServed(base)
    expect(files.map(({ path }) => path)).toEqual([
      'ant/1.png',
      'ant/more/2.png',
      'ant/near.png',
      'bee/1.png',
      'bee/sub/2.png',
      'dog/1.png',
      'dog/sub/2.png',
    ])
    expect(files.emptyFolders).toContain('cow')
    expect(() => new ImageFolder(files)).toThrow(/got none in cow/)
    await listServed(base)
    expect(said).toHaveLength(1)
    expect(said[0]).toContain('are left out: ant/around, ant/far.png, ant/hidden.png, ')
    expect(said[0]).toMatch(/ant\/nowhere.png, .* and \d more\. Put the files themselves there/)
  })

  test('serves what they lead to in it, and nothing elsewhere', async () => {
    const near = await fetch(`${base}dog/sub/2.png`)
    expect(await near.text()).toBe('bee/sub/2.png')
    said.length = 0
    for (const path of ['ant/far.png', 'cow/secret.png', 'ant/hidden.png', 'cow/'])
      expect((await fetch(`${base}${path}`)).status).toBe(404)
    // The others were said with the listing.
    expect(said).toHaveLength(1)
    expect(said[0]).toContain('are left out: cow/secret.png. ')
  })
})
