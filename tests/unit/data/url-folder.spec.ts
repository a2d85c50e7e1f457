import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { memoryFileStore } from '../../../src/data/file-store.ts'
import { urlFolder } from '../../../src/data/url-folder.ts'

const contents = randomBytes(300_000)
/** Bytes after which each next answer of more than one byte breaks off. */
let breaks: number[] = []
let requests: (string | undefined)[] = []
let knowsRanges = true
let tag = '"1"'
let server: Server
let base: string

function answer(request: IncomingMessage, response: ServerResponse): void {
  const { range } = request.headers
  requests.push(range)
  if (request.url === '/locked/config.json') {
    response.writeHead(401).end()
    return
  }
  if (request.url !== '/model%20a/file.bin') {
    response.writeHead(404).end()
    return
  }
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? []
  const isPart = knowsRanges && first !== undefined
  const [begin, end] = isPart
    ? [Number(first), last ? Math.min(contents.length, Number(last) + 1) : contents.length]
    : [0, contents.length]
  response.writeHead(isPart ? 206 : 200, {
    ETag: tag,
    'Content-Length': end - begin,
    ...(isPart && { 'Content-Range': `bytes ${begin}-${end - 1}/${contents.length}` }),
  })
  const limit = end - begin > 1 ? breaks.shift() : undefined
  const body = contents.subarray(begin, end)
  if (limit === undefined) response.end(body)
  else response.write(body.subarray(0, limit), () => response.destroy())
}

beforeAll(async () => {
  server = createServer(answer)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
})
afterAll(() => new Promise<void>((resolve) => server.close(() => resolve())))
beforeEach(() => {
  breaks = []
  requests = []
  knowsRanges = true
  tag = '"1"'
})

const folderAt = (path = 'model a', options = {}) =>
  urlFolder(base + path, { retryDelayMs: 1, ...options })

test('urlFolder reads parts by ranges when the server knows them', async () => {
  const folder = folderAt()
  expect(await folder.size('file.bin')).toBe(contents.length)
  expect(await folder.size('none.json')).toBe(undefined)
  const part = await folder.read('file.bin', 1000, 2000)
  expect(contents.subarray(1000, 3000).equals(part)).toBe(true)
  expect(requests).toEqual(['bytes=0-0', 'bytes=0-0', 'bytes=1000-2999'])
})

test('urlFolder resumes after the last byte when a download breaks', async () => {
  breaks = [70_000, 50_000]
  const bytes = await folderAt().read('file.bin', 0, contents.length)
  expect(contents.equals(bytes)).toBe(true)
  const [, first, second, third] = requests
  expect(first).toBe('bytes=0-299999')
  const begins = [second, third].map((range) => Number(/\d+/.exec(range!)![0]))
  expect(begins[0]).toBeGreaterThan(0)
  expect(begins[0]).toBeLessThanOrEqual(70_000)
  expect(begins[1]).toBeGreaterThan(begins[0])
})

test('urlFolder names the bytes that it has when a download breaks again and again', async () => {
  breaks = [10, 10, 10]
  await expect(folderAt('model a', { retries: 2 }).read('file.bin', 100, 200_000)).rejects.toThrow(
    /file.bin: the connection broke 3 times, after \d+ of 300000 bytes/,
  )
})

test('urlFolder fetches a file whole, once, when the server ignores ranges', async () => {
  knowsRanges = false
  const folder = folderAt('model a', { store: memoryFileStore() })
  expect(await folder.size('file.bin')).toBe(contents.length)
  for (const offset of [0, 5000]) {
    const part = await folder.read('file.bin', offset, 5000)
    expect(contents.subarray(offset, offset + 5000).equals(part)).toBe(true)
  }
  expect(requests).toEqual(['bytes=0-0', undefined])
})

test('urlFolder takes a file from the store when it has been kept there before', async () => {
  const store = memoryFileStore()
  const seen: number[] = []
  await folderAt('model a', { store }).keep!(['file.bin'], (bytes) => seen.push(bytes))
  expect(seen.at(-1)).toBe(contents.length)
  const folder = folderAt('model a', { store })
  await folder.keep!(['file.bin'], () => undefined)
  expect((await folder.read('file.bin', 7, 9)).length).toBe(9)
  expect(requests).toEqual(['bytes=0-0', undefined, 'bytes=0-0'])
})

test('urlFolder refuses a file when it changes while it is read', async () => {
  const folder = folderAt()
  await folder.read('file.bin', 0, 10)
  tag = '"2"'
  await expect(folder.read('file.bin', 10, 10)).rejects.toThrow('changed while it was read')
})

test('urlFolder says what to do when a model needs a login', async () => {
  await expect(folderAt('locked/').size('config.json')).rejects.toThrow(
    'status 401. The file needs a login: download the folder, and pick its files.',
  )
})

test('urlFolder rejects with the reason when it is aborted', async () => {
  const aborter = new AbortController()
  const folder = folderAt('model a', { signal: aborter.signal })
  await folder.size('file.bin')
  aborter.abort(new Error('stopped'))
  await expect(folder.read('file.bin', 0, 10)).rejects.toThrow('stopped')
})
