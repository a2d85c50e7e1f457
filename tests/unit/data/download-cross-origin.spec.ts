import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { type DownloadProgress, download } from '../../../src/data/download.ts'
import { type FileStore, memoryFileStore } from '../../../src/data/file-store.ts'

// A server of another origin as a page sees it: fetch as browsers do it, with headers that are not exposed left out.

const contents = randomBytes(5 * 2 ** 20)
const url = 'https://files.example/file.bin'

interface Server {
  /** Whether its answer to a preflight allows If-Range. */
  allowsIfRange: boolean
  /** Headers beside those that browsers always show. */
  exposes: readonly string[]
  /** What Content-Range of a part is. */
  contentRange: (from: number) => string
  /** Bytes after which the next answers break off. */
  breaks: number[]
  isOffline: boolean
  statusOfWhole: number
}

const alwaysShown = ['content-length', 'last-modified']
let server: Server
let asked: string[]
let store: FileStore

function answer(_: string, { headers }: { headers: Record<string, string> }): Response {
  const range = headers.Range
  asked.push(range ?? 'whole')
  if (server.isOffline || (headers['If-Range'] && !server.allowsIfRange))
    throw new TypeError('Failed to fetch')
  const from = range ? Number(/\d+/.exec(range)?.[0]) : 0
  const bytes = contents.subarray(from)
  const limit = server.breaks.shift() ?? Number.POSITIVE_INFINITY
  let at = 0
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at >= limit) controller.error(new TypeError('network error'))
      else if (at >= bytes.length) controller.close()
      else {
        controller.enqueue(bytes.subarray(at, at + 100_000))
        at += 100_000
      }
    },
  })
  const sent = new Headers({
    'Content-Length': String(bytes.length),
    'Last-Modified': 'Mon, 01 Jun 2026 00:00:00 GMT',
    ETag: '"v1"',
    ...(range && { 'Content-Range': server.contentRange(from) }),
  })
  for (const name of [...sent.keys()])
    if (!alwaysShown.includes(name) && !server.exposes.includes(name)) sent.delete(name)
  return new Response(body, { status: range ? 206 : server.statusOfWhole, headers: sent })
}

beforeEach(() => {
  asked = []
  store = memoryFileStore()
  server = {
    allowsIfRange: true,
    exposes: [],
    contentRange: (from) => `bytes ${from}-${contents.length - 1}/${contents.length}`,
    breaks: [4_500_000],
    isOffline: false,
    statusOfWhole: 200,
  }
  vi.stubGlobal('fetch', async (...given: Parameters<typeof answer>) => answer(...given))
  vi.stubGlobal('origin', 'https://page.example')
})
afterEach(() => vi.unstubAllGlobals())

const fetchFile = (options: object = {}) => download(url, { store, retryDelayMs: 1, ...options })
const isWhole = async (blob: Blob) => Buffer.from(await blob.arrayBuffer()).equals(contents)
const partly = expect.stringMatching(/^bytes=4\d+-$/)

test('a part without a readable Content-Range is not used: the whole file is downloaded', async () => {
  const progress: DownloadProgress[] = []
  const file = await fetchFile({
    onProgress: (now: DownloadProgress) => progress.push({ ...now }),
  })
  expect(await isWhole(file)).toBe(true)
  expect(asked).toEqual(['whole', partly, 'whole'])
  expect(progress.every(({ resumedBytes }) => resumedBytes === 0)).toBe(true)
})

test.each([
  [
    'of another place',
    (from: number) => `bytes ${from + 1}-${contents.length - 1}/${contents.length}`,
  ],
  ['of a file of another size', (from: number) => `bytes ${from}-${contents.length}/9999999`],
  ['that cannot be read', () => 'items 1-2/3'],
])('a part %s is not used either', async (_, contentRange) => {
  Object.assign(server, { exposes: ['content-range'], contentRange })
  expect(await isWhole(await fetchFile())).toBe(true)
  expect(asked).toEqual(['whole', partly, 'whole'])
})

test('a part with its range is used, with or without the total', async () => {
  server.exposes = ['content-range', 'etag']
  expect(await isWhole(await fetchFile())).toBe(true)
  expect(asked).toEqual(['whole', partly])
  asked = []
  store = memoryFileStore()
  server.breaks = [4_500_000]
  server.contentRange = (from) => `bytes ${from}-${contents.length - 1}/*`
  expect(await isWhole(await fetchFile())).toBe(true)
  expect(asked).toEqual(['whole', partly])
})

test('where If-Range is refused, the whole file is asked for, once for each attempt', async () => {
  server.allowsIfRange = false
  server.breaks = [4_500_000, 4_600_000]
  expect(await isWhole(await fetchFile())).toBe(true)
  expect(asked).toEqual(['whole', partly, 'whole', partly, 'whole'])
})

test('downloaded bytes are kept while the server is away or answers with an error', async () => {
  server.exposes = ['content-range']
  await expect(fetchFile({ retries: 0 })).rejects.toMatchObject({ code: 'data.interrupted' })
  server.isOffline = true
  await expect(fetchFile({ retries: 1 })).rejects.toMatchObject({
    code: 'data.interrupted',
    message: expect.stringMatching(/after 4\d+ of \d+ bytes \(.*Failed to fetch/),
  })
  Object.assign(server, { isOffline: false, allowsIfRange: false, statusOfWhole: 503 })
  await expect(fetchFile({ retries: 0 })).rejects.toMatchObject({
    message: expect.stringContaining('status 503'),
  })
  server.allowsIfRange = true
  asked = []
  expect(await isWhole(await fetchFile())).toBe(true)
  expect(asked).toEqual([partly])
})

test('a part in the place of the whole file is refused', async () => {
  Object.assign(server, { breaks: [], statusOfWhole: 206 })
  await expect(fetchFile()).rejects.toMatchObject({
    code: 'data.missing',
    message: expect.stringContaining('the server answered with status 206'),
  })
})

test('outside of pages a broken connection is retried in parts, never from the start', async () => {
  vi.stubGlobal('origin', undefined)
  server.allowsIfRange = false
  await expect(fetchFile({ retries: 2 })).rejects.toMatchObject({ code: 'data.interrupted' })
  expect(asked).toEqual(['whole', partly, partly])
})
