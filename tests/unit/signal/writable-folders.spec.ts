import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  secretPrefix,
  serveWritable,
  type WritableFolders,
} from '../../../node/writable-folders.ts'
import { getCheckpoint, putCheckpoint } from '../../../src/data/checkpoint-folder.ts'
import { httpFolder } from '../../../src/data/http-folder.ts'

// The launcher's folder over HTTP, as rank 0's tab uses it.

const prefix = secretPrefix('checkpoints')
let disk: string
let folders: WritableFolders
let server: Server
let origin: string
beforeEach(async () => {
  disk = await mkdtemp(join(tmpdir(), 'tabring-'))
  folders = { [prefix]: disk }
  const handle = serveWritable(folders)
  server = createServer((incoming, response) =>
    handle(incoming, response, () => response.writeHead(418).end()),
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

test('a file that is on its way while its prefix is taken out does not come to lie there', async () => {
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
  expect(await readdir(disk)).toEqual(['.hidden'])
})

test('a folder that is gone, and a server that is gone, are told by name', async () => {
  const folder = httpFolder(origin + prefix)
  await rm(disk, { recursive: true })
  await expect(folder.write('w', new Blob(['x']))).rejects.toMatchObject({
    code: 'file.unwritable',
    message: expect.stringMatching(/^w: expected the server to take PUT, got 500 ENOENT/),
  })
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  await expect(folder.write('w', new Blob(['x']))).rejects.toMatchObject({
    code: 'file.unwritable',
  })
  await expect(folder.read('w')).rejects.toMatchObject({ code: 'data.missing' })
})
