import { execFileSync } from 'node:child_process'
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { CheckpointFolder } from '../../../node/checkpoint-folder.ts'
import { temporaryPath } from '../../../node/temporary-files.ts'
import {
  secretPrefix,
  serveWritable,
  type WritableFolders,
  type WritableOptions,
} from '../../../node/writable-folders.ts'
import { getCheckpoint, putCheckpoint } from '../../../src/data/checkpoint-folder.ts'
import { httpFolder } from '../../../src/data/http-folder.ts'

// The launcher's folder over HTTP, as rank 0's tab uses it.

const prefix = secretPrefix('checkpoints')
let disk: string
let folders: WritableFolders
/** Those of one test; without them the handler's own. */
let limits: WritableOptions
let server: Server
let origin: string
beforeEach(async () => {
  disk = await mkdtemp(join(tmpdir(), 'tabring-'))
  folders = { [prefix]: disk }
  limits = {}
  server = createServer((incoming, response) =>
    serveWritable(folders, limits)(incoming, response, () => response.writeHead(418).end()),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterEach(async () => {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  await rm(disk, { recursive: true, force: true })
})

const bytesOf = (length: number) => Uint8Array.from({ length }, (_, i) => (i * 31) % 251)

test('prefixes are not to be guessed', () => {
  expect(prefix).toMatch(/^\/checkpoints-[0-9a-f]{32}\/$/)
  expect(secretPrefix('checkpoints')).not.toBe(prefix)
})

test('files are written, read, replaced and removed; checkpoints go through whole', async () => {
  const folder = httpFolder(origin + prefix)
  expect(await folder.read('a.json')).toBeUndefined()
  await folder.write('a.json', new Blob(['one']))
  await folder.write('a.json', new Blob(['two']))
  expect(await (await folder.read('a.json'))?.text()).toBe('two')
  await folder.remove('a.json')
  await folder.remove('a.json')
  expect(await folder.read('a.json')).toBeUndefined()

  const large = bytesOf(3 * 2 ** 20 + 5)
  await putCheckpoint(folder, bytesOf(9), { label: 'step-1', isBest: true, keepLast: 1 })
  await putCheckpoint(folder, bytesOf(8), { label: 'step-2', isBest: false, keepLast: 1 })
  await putCheckpoint(folder, large, { label: 'step-3', isBest: false, keepLast: 1 })
  expect(Buffer.compare((await getCheckpoint(folder, 'latest'))!, large)).toBe(0)
  expect(await getCheckpoint(folder, 'best')).toEqual(bytesOf(9))
  expect((await readdir(disk)).sort()).toEqual([
    'checkpoints.json',
    'step-1.safetensors',
    'step-3.safetensors',
  ])
})

test('a file that is cut short on its way leaves the one before it', async () => {
  await writeFile(join(disk, 'w'), 'kept')
  const sending = request(`${origin}${prefix}w`, {
    method: 'PUT',
    headers: { 'Content-Length': 1000 },
  })
  const ended = new Promise((resolve) => sending.on('error', resolve))
  sending.write('half')
  // The first bytes are on the disk before the connection breaks off.
  for (;;) {
    const other = (await readdir(disk)).find((name) => name !== 'w')
    if (other && (await readFile(join(disk, other), 'utf8')) === 'half') break
    await new Promise((resolve) => setImmediate(resolve))
  }
  sending.destroy()
  await ended
  while ((await readdir(disk)).length > 1) await new Promise((resolve) => setImmediate(resolve))
  expect(await readdir(disk)).toEqual(['w'])
  expect(await readFile(join(disk, 'w'), 'utf8')).toBe('kept')
})

test('a file whose prefix is removed during its upload is not stored', async () => {
  const late = '/checkpoints-late/'
  folders[late] = disk
  await writeFile(join(disk, 'w'), 'kept')
  const sending = request(`${origin}${late}w`, {
    method: 'PUT',
    headers: { 'Content-Length': 8 },
  })
  const answered = new Promise<number | undefined>((resolve) =>
    sending.on('response', (response) => resolve(response.statusCode)),
  )
  sending.write('half')
  while ((await readdir(disk)).length < 2) await new Promise((resolve) => setImmediate(resolve))
  delete folders[late]
  sending.end('half')
  expect(await answered).toBe(410)
  expect(await readdir(disk)).toEqual(['w'])
  expect(await readFile(join(disk, 'w'), 'utf8')).toBe('kept')
  expect((await fetch(`${origin}${late}w`)).status).toBe(418)
})

test('only plain names below the prefix, by GET, PUT and DELETE', async () => {
  await writeFile(join(disk, '.hidden'), 'secret')
  const status = async (path: string, method = 'GET') =>
    (await fetch(`${origin}${path}`, { method, body: method === 'PUT' ? 'x' : undefined })).status
  expect(await status('/other/file')).toBe(418)
  const guess = prefix.slice(0, -2) + (prefix.at(-2) === '0' ? '1' : '0')
  expect(await status(`${guess}/file`, 'PUT')).toBe(418)
  for (const name of ['', '.hidden', 'a/b', '..%2Fout', '%2e%2e%2fout', 'a%00', 'a b']) {
    expect(await status(`${prefix}${name}`, 'PUT'), name).toBe(404)
  }
  expect(await status(`${prefix}file`, 'POST')).toBe(405)
  // A missing file is no error, but browsers print a 404 as one.
  expect(await status(`${prefix}file`)).toBe(204)
  expect(await readdir(disk)).toEqual(['.hidden'])
})

test('the error names a folder or a server that is gone', async () => {
  const folder = httpFolder(origin + prefix)
  await rm(disk, { recursive: true })
  await expect(folder.write('w', new Blob(['x']))).rejects.toMatchObject({
    code: 'file.unwritable',
    message: expect.stringMatching(/^w: the server did not accept PUT: 500 ENOENT/),
  })
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  await expect(folder.write('w', new Blob(['x']))).rejects.toMatchObject({
    code: 'file.unwritable',
  })
  await expect(folder.read('w')).rejects.toMatchObject({ code: 'data.missing' })
})

test('links, folders and pipes are neither read nor overwritten', async () => {
  const outside = await mkdtemp(join(tmpdir(), 'tabring-'))
  try {
    await writeFile(join(outside, 'secret'), 'secret')
    await writeFile(join(disk, 'plain'), 'plain')
    await symlink(join(outside, 'secret'), join(disk, 'away'))
    await symlink('plain', join(disk, 'near'))
    await symlink(join(outside, 'not-yet'), join(disk, 'dangling'))
    await mkdir(join(disk, 'folder'))
    execFileSync('mkfifo', [join(disk, 'pipe')])
    const folder = httpFolder(origin + prefix)
    for (const name of ['away', 'near', 'dangling', 'folder', 'pipe']) {
      const kind = /folder|pipe/.test(name) ? 'something else' : 'a symbolic link'
      const refused = `: 403 expected ${name} to be a plain file in the folder, got ${kind}. Put the file itself there.`
      await expect(folder.read(name), name).rejects.toMatchObject({
        code: 'data.missing',
        message: expect.stringContaining(refused),
      })
      await expect(folder.write(name, new Blob(['x'])), name).rejects.toMatchObject({
        code: 'file.unwritable',
        message: expect.stringContaining(refused),
      })
    }
    await folder.remove('away')
    expect(await readdir(outside)).toEqual(['secret'])
    expect(await readFile(join(outside, 'secret'), 'utf8')).toBe('secret')
    expect((await readdir(disk)).sort()).toEqual(['dangling', 'folder', 'near', 'pipe', 'plain'])
    expect(await (await folder.read('plain'))?.text()).toBe('plain')
  } finally {
    await rm(outside, { recursive: true })
  }
})

test('the folder itself may be a link', async () => {
  folders[prefix] = `${disk}-link`
  await symlink(disk, `${disk}-link`)
  try {
    const folder = httpFolder(origin + prefix)
    await folder.write('a', new Blob(['one']))
    expect(await (await folder.read('a'))?.text()).toBe('one')
  } finally {
    await rm(`${disk}-link`)
  }
})

test('an empty file is read as one', async () => {
  await writeFile(join(disk, 'empty'), '')
  expect((await httpFolder(origin + prefix).read('empty'))?.size).toBe(0)
})

test('a file beyond the limit is refused, announced or not, and leaves the one before it', async () => {
  limits = { maxFileBytes: 1000 }
  const folder = httpFolder(origin + prefix)
  await folder.write('w', new Blob([bytesOf(1000)]))
  await expect(folder.write('w', new Blob([bytesOf(1001)]))).rejects.toMatchObject({
    code: 'file.unwritable',
    message: expect.stringMatching(
      /^w: the server did not accept PUT: 413 w has more than 1000 bytes\.( (?!Check that)|$)/,
    ),
  })
  // In chunks, without a length: what is beyond the limit is not kept.
  const sending = request(`${origin}${prefix}w`, { method: 'PUT' })
  const answered = new Promise<number | undefined>((resolve) =>
    sending.on('response', (response) => resolve(response.statusCode)),
  )
  sending.on('error', () => undefined)
  sending.write(bytesOf(600))
  sending.write(bytesOf(600))
  expect(await answered).toBe(413)
  sending.destroy()
  expect(await readdir(disk)).toEqual(['w'])
  expect((await stat(join(disk, 'w'))).size).toBe(1000)
})

test('a file that the disk has no room for is refused before it is sent', async () => {
  limits = { maxFileBytes: Number.MAX_SAFE_INTEGER }
  const sending = request(`${origin}${prefix}w`, {
    method: 'PUT',
    headers: { 'Content-Length': 2 ** 52 },
  })
  sending.on('error', () => undefined)
  const answered = new Promise<number | undefined>((resolve) =>
    sending.on('response', (response) => resolve(response.statusCode)),
  )
  sending.flushHeaders()
  expect(await answered).toBe(507)
  sending.destroy()
  expect(await readdir(disk)).toEqual([])
})

test('a launcher sweeps the half-written files of killed ones, and nothing else', async () => {
  const hoursAgo = new Date(Date.now() - 2 * 3_600_000)
  const dead = Number(execFileSync(process.execPath, ['-e', 'console.log(process.pid)']).toString())
  const of = (pid: number, name: string) => `${name}.${pid}-0123abcd.tmp`
  const own = temporaryPath('w')
  const old = [of(dead, 'w'), of(dead, 'probe'), own, 'w.0123abcd.tmp', 'mine.tmp', 'w']
  for (const name of old) {
    await writeFile(join(disk, name), 'half')
    await utimes(join(disk, name), hoursAgo, hoursAgo)
  }
  await writeFile(join(disk, of(dead, 'new')), 'half')
  await mkdir(join(disk, of(dead, 'folder')))
  await utimes(join(disk, of(dead, 'folder')), hoursAgo, hoursAgo)

  await new CheckpointFolder(disk).prove()
  expect((await readdir(disk)).sort()).toEqual(
    [own, 'w.0123abcd.tmp', 'mine.tmp', 'w', of(dead, 'new'), of(dead, 'folder')].sort(),
  )
  // Nobody reads or writes such a file over HTTP.
  expect((await fetch(origin + prefix + own)).status).toBe(404)
  expect((await fetch(origin + prefix + own, { method: 'PUT', body: 'x' })).status).toBe(404)
})
