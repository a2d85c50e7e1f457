import { createHash, randomBytes } from 'node:crypto'
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { serveMounts } from '../../../node/mounts.ts'
import {
  type DownloadOptions,
  type DownloadProgress,
  download,
  forgetDownload,
} from '../../../src/data/download.ts'
import { type FileStore, memoryFileStore } from '../../../src/data/file-store.ts'
import { listServed } from '../../../src/data/folder.ts'

// Against Tabring's own server, which breaks connections off after some bytes.

const contents = randomBytes(6 * 2 ** 20)
const hash = createHash('sha256').update(contents).digest('hex')
let folder: string
let base: string
let closeServer: () => Promise<void>
/** Bytes after which each next response to a GET breaks off. */
let breaks: number[] = []
let requests: { range: string | undefined; status: number }[] = []
let store: FileStore

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-download-'))
  await writeFile(join(folder, 'file.bin'), contents)
  const mount = serveMounts({ '/data/': folder })
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const limit = breaks.shift()
    if (limit !== undefined) {
      const write = response.write.bind(response)
      let sent = 0
      response.write = ((chunk: Buffer, ...rest: []) => {
        const left = limit - sent
        sent += chunk.length
        if (left > chunk.length) return write(chunk, ...rest)
        write(chunk.subarray(0, left), () => response.destroy())
        return false
      }) as typeof response.write
    }
    response.on('close', () =>
      requests.push({ range: request.headers.range, status: response.statusCode }),
    )
    mount(request, response, () => response.writeHead(404).end())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/data/`
  closeServer = () => new Promise((resolve) => server.close(() => resolve()))
})
afterAll(async () => {
  await closeServer()
  await rm(folder, { recursive: true, force: true })
})
beforeEach(() => {
  breaks = []
  requests = []
  store = memoryFileStore()
})

const fetchFile = (options: DownloadOptions = {}) =>
  download(`${base}file.bin`, { store, retryDelayMs: 1, ...options })
const bytesOf = async (blob: Blob) => Buffer.from(await blob.arrayBuffer())

test('a file comes whole, with progress, and then from the cache', async () => {
  const progress: DownloadProgress[] = []
  const file = await fetchFile({ sha256: hash, onProgress: (now) => progress.push({ ...now }) })
  expect((await bytesOf(file)).equals(contents)).toBe(true)
  expect(progress[0]).toEqual({ receivedBytes: 0, totalBytes: contents.length, resumedBytes: 0 })
  expect(progress.at(-1)?.receivedBytes).toBe(contents.length)
  expect((await bytesOf(await fetchFile({ sha256: hash }))).equals(contents)).toBe(true)
  expect(requests).toHaveLength(1)
  await forgetDownload(`${base}file.bin`, store)
  await fetchFile()
  expect(requests).toHaveLength(2)
})

test('an interrupted download continues after its last byte, within a call and in a later one', async () => {
  breaks = [1_000_000, 4_500_000]
  const file = await fetchFile({ sha256: hash })
  expect((await bytesOf(file)).equals(contents)).toBe(true)
  expect(requests.map(({ status }) => status)).toEqual([200, 206, 206])
  const starts = requests.map(({ range }) => Number(/\d+/.exec(range ?? '0')?.[0]))
  expect(starts[1]).toBeGreaterThan(0)
  expect(starts[1]).toBeLessThanOrEqual(1_000_000)
  expect(starts[2]).toBeGreaterThan(starts[1])

  store = memoryFileStore()
  breaks = [2_000_000]
  await expect(fetchFile({ retries: 0 })).rejects.toMatchObject({
    code: 'data.interrupted',
    message: expect.stringContaining('the download resumes there'),
  })
  const progress: DownloadProgress[] = []
  await fetchFile({ sha256: hash, onProgress: (now) => progress.push({ ...now }) })
  expect(progress[0].resumedBytes).toBeGreaterThan(0)
  expect(progress[0].receivedBytes).toBe(progress[0].resumedBytes)
})

test('a file that changed in between is downloaded from the start', async () => {
  breaks = [2_000_000]
  await expect(fetchFile({ retries: 0 })).rejects.toMatchObject({ code: 'data.interrupted' })
  await utimes(join(folder, 'file.bin'), new Date(), new Date(Date.now() + 5000))
  expect((await bytesOf(await fetchFile({ sha256: hash }))).equals(contents)).toBe(true)
  expect(requests.at(-1)?.status).toBe(200)
})

test('a wrong checksum is refused and nothing of the file is kept', async () => {
  const wrong = hash.replace(/^./, hash[0] === '0' ? '1' : '0')
  await expect(fetchFile({ sha256: wrong })).rejects.toMatchObject({
    code: 'data.checksum',
    message: expect.stringContaining(`SHA-256 ${wrong}, got ${hash}`),
  })
  await fetchFile({ sha256: hash })
  // A cached file with another checksum than the wanted one is asked for again.
  await expect(fetchFile({ sha256: wrong })).rejects.toMatchObject({ code: 'data.checksum' })
  expect(requests).toHaveLength(3)
  await expect(fetchFile({ sha256: 'abc' })).rejects.toMatchObject({ code: 'config.invalid' })
})

test('a missing file, and an aborted download that is resumed', async () => {
  await expect(download(`${base}none.bin`, { store })).rejects.toMatchObject({
    code: 'data.missing',
    message: expect.stringContaining('status 404'),
  })
  const stop = new AbortController()
  const onProgress = ({ receivedBytes }: DownloadProgress) => {
    if (receivedBytes > 4_500_000) stop.abort(new Error('enough'))
  }
  await expect(fetchFile({ signal: stop.signal, onProgress })).rejects.toThrow('enough')
  const progress: DownloadProgress[] = []
  await fetchFile({ sha256: hash, onProgress: (now) => progress.push({ ...now }) })
  expect(progress[0].resumedBytes).toBeGreaterThan(4_000_000)
})

test('the server lists a folder', async () => {
  const files = await listServed(base)
  expect(files).toEqual([{ path: 'file.bin', source: { url: `${base}file.bin` } }])
  await expect(listServed(`${base}file.bin`)).rejects.toMatchObject({ code: 'data.malformed' })
  // Half a character, of which no address can be made.
  const half = async () => new Response('["\\ud800"]')
  const real = globalThis.fetch
  globalThis.fetch = half
  const listing = listServed(base).finally(() => {
    globalThis.fetch = real
  })
  await expect(listing).rejects.toMatchObject({ code: 'data.malformed' })
  await expect(listServed(`${base}../../etc/`)).rejects.toMatchObject({ code: 'data.missing' })
})
