import { sha256 } from '@noble/hashes/sha2.js'
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js'
import { DataError, messageOf } from '../util/errors.ts'
import { isSignal, quoted } from '../util/kind-of.ts'
import {
  checkArgument,
  checkNumber,
  checkOptions,
  isNotNegative,
  type OptionNames,
} from '../util/options.ts'
import { defaultFileStore, type FileStore, type PartFolder } from './file-store.ts'
import { addressOf } from './folder.ts'
import { readPart } from './read-part.ts'

export interface DownloadProgress {
  receivedBytes: number
  /** Absent if the server does not report it. */
  totalBytes: number | undefined
  /** Bytes left by an earlier attempt, after which this one resumed. */
  resumedBytes: number
}

export interface DownloadOptions {
  /** SHA-256 of the file as 64 hexadecimal digits; checked at the end, and for a cached file. */
  sha256?: string
  onProgress?: (progress: DownloadProgress) => void
  /** Where to keep files. Default: the origin private file system, or memory if there is none. */
  store?: FileStore
  /** Number of further attempts after an interruption, each resuming where the last one ended. Default 3. */
  retries?: number
  /** Milliseconds before the first further attempt; doubled each time. Default 500. */
  retryDelayMs?: number
  signal?: AbortSignal
}

const downloadOptions: OptionNames<DownloadOptions> = {
  sha256: 'text',
  onProgress: 'function',
  store: true,
  retries: true,
  retryDelayMs: true,
  signal: true,
}

/** What is known of a file whose parts lie in the store. */
interface Facts {
  url: string
  /** Sizes of the parts that are there whole, in order. */
  parts: number[]
  totalBytes: number | null
  /** The server's name for this version of the file; without one nothing is resumed. */
  version: string | null
  /** The whole file's, once it is there. */
  sha256: string | null
}

const partBytes = 4 * 2 ** 20
const factsName = 'facts.json'
const partName = (index: number) => `part-${index}`
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)
const hashOf = (text: string) => bytesToHex(sha256(utf8ToBytes(text)))

/**
 * Returns the file at `url`, from the cache if it is complete there.
 *
 * It is stored in parts of 4 MiB as it arrives. An interrupted download, in this call or an earlier visit, resumes after its last byte
 * (HTTP Range) if the server supports that and still has the same version of the file; otherwise it starts again. A server of another
 * origin must allow the header If-Range and expose Content-Range for that.
 * A cached file is not requested again; `forgetDownload` removes it.
 * errors: `data.missing` if the server refuses; `data.interrupted` if all attempts failed (received parts are kept); `data.checksum` if the
 * complete file has another checksum (it is discarded); `config.invalid` for an unknown option.
 */
export async function download(url: string | URL, options: DownloadOptions = {}): Promise<Blob> {
  checkOptions('download', options, downloadOptions)
  checkAttempts('download', options)
  const address = addressOf('download', 'url', url).href
  const wanted = typeof options.sha256 === 'string' ? options.sha256.toLowerCase() : options.sha256
  if (wanted !== undefined && !/^[0-9a-f]{64}$/.test(wanted))
    throw new DataError(
      'config.invalid',
      `download: expected a sha256 of 64 hexadecimal digits, got ${quoted(options.sha256)}. Copy it from the publisher of the file.`,
    )
  const store = checkedStore('download', options.store)
  return alone(`tabring-download-${address}`, async () => {
    const folder = await store.folder(hashOf(address))
    const facts = await readFacts(folder, address)
    if (facts.sha256 !== null && (wanted === undefined || facts.sha256 === wanted))
      return wholeFile(folder, facts)
    if (facts.sha256 !== null) await begin(folder, facts)
    await receiveAll(folder, facts, options)
    return finish(folder, facts, wanted)
  })
}

/** Removes the file at `url` from the cache. */
export async function forgetDownload(url: string | URL, store?: FileStore): Promise<void> {
  const address = addressOf('forgetDownload', 'url', url).href
  const folder = await checkedStore('forgetDownload', store).folder(hashOf(address))
  await folder.clear()
}

/** errors: `config.invalid` for options of attempts that are out of range; a TypeError for what is no signal. */
export function checkAttempts(where: string, options: DownloadOptions): void {
  const { signal, retries, retryDelayMs, store } = options
  if (store !== undefined) checkedStore(where, store)
  checkArgument(where, 'signal', signal, isSignal(signal), 'an AbortSignal')
  checkNumber(where, 'retries', retries, isNotNegative, 'at least 0')
  checkNumber(where, 'retryDelayMs', retryDelayMs, isNotNegative, 'at least 0')
}

/** The store that is given, else the default one. errors: a TypeError for what is no store. */
function checkedStore(where: string, store: FileStore = defaultFileStore()): FileStore {
  const isStore = typeof store?.folder === 'function'
  checkArgument(where, 'store', store, isStore, 'a store such as opfsFileStore()')
  return store
}

/** Runs `body` while no other tab or worker of this origin runs one of the same name. */
async function alone<T>(name: string, body: () => Promise<T>): Promise<T> {
  if (!globalThis.navigator?.locks) return body()
  return (await navigator.locks.request(name, body)) as T
}

async function readFacts(folder: PartFolder, url: string): Promise<Facts> {
  const empty: Facts = { url, parts: [], totalBytes: null, version: null, sha256: null }
  const blob = await readPart(folder, factsName)
  if (!blob) return empty
  let facts: Facts
  try {
    facts = JSON.parse(await blob.text())
  } catch {
    await begin(folder, empty)
    return empty
  }
  // Another program, or the browser under pressure, may have removed a part.
  for (const [index, bytes] of facts.parts.entries()) {
    if ((await readPart(folder, partName(index)))?.size !== bytes) {
      await begin(folder, empty)
      return empty
    }
  }
  return facts
}

const writeFacts = (folder: PartFolder, facts: Facts) =>
  folder.write(factsName, new Blob([JSON.stringify(facts)]))

/** Forgets all parts. */
async function begin(folder: PartFolder, facts: Facts): Promise<void> {
  await folder.clear()
  Object.assign(facts, { parts: [], totalBytes: null, version: null, sha256: null })
}

async function wholeFile(folder: PartFolder, facts: Facts): Promise<Blob> {
  const parts = await Promise.all(facts.parts.map((_, index) => readPart(folder, partName(index))))
  return new Blob(parts as Blob[])
}

async function finish(folder: PartFolder, facts: Facts, wanted: string | undefined): Promise<Blob> {
  const hash = sha256.create()
  for (const [index] of facts.parts.entries()) {
    const part = await readPart(folder, partName(index))
    hash.update(new Uint8Array(await part!.arrayBuffer()))
  }
  const got = bytesToHex(hash.digest())
  if (wanted !== undefined && got !== wanted) {
    const bytes = sum(facts.parts)
    await begin(folder, facts)
    throw new DataError(
      'data.checksum',
      `${facts.url}: expected the file with SHA-256 ${wanted}, got ${got} (${bytes} bytes). Check the address and the checksum.`,
    )
  }
  facts.sha256 = got
  await writeFacts(folder, facts)
  return wholeFile(folder, facts)
}

/** Attempts until the file is whole. errors: `data.missing`, `data.interrupted`, the signal's reason. */
const receiveAll = (folder: PartFolder, facts: Facts, options: DownloadOptions): Promise<void> =>
  attemptAll(
    options,
    () => receive(folder, facts, options),
    () => `${facts.url}: the connection broke`,
    () => `${sum(facts.parts)} of ${facts.totalBytes ?? 'unknown'} bytes`,
  )

/**
 * Attempts until one does not break off. `attempt` returns why it did, or undefined; `what` and `place` are for the error.
 *
 * errors: `data.interrupted`, the signal's reason, what `attempt` throws.
 */
export async function attemptAll(
  { retries = 3, retryDelayMs = 500, signal }: DownloadOptions,
  attempt: () => Promise<string | undefined>,
  what: () => string,
  place: () => string,
): Promise<void> {
  for (let broken = 0; ; broken++) {
    const why = await attempt()
    if (why === undefined) return
    signal?.throwIfAborted()
    if (broken === retries)
      throw new DataError(
        'data.interrupted',
        `${what()} ${broken + 1} times, after ${place()} (${why}). Try again: the download resumes there.`,
      )
    await new Promise((resolve) => setTimeout(resolve, retryDelayMs * 2 ** broken))
  }
}

/** One attempt; returns why it broke off, or undefined when the file is whole. */
async function receive(
  folder: PartFolder,
  facts: Facts,
  { signal, onProgress }: DownloadOptions,
): Promise<string | undefined> {
  if (facts.parts.length > 0 && (facts.version === null || facts.totalBytes === null))
    await begin(folder, facts)
  const at = sum(facts.parts)
  if (at === 0) return receiveWhole(folder, facts, await ask(facts.url, signal), onProgress)
  if (at === facts.totalBytes) return undefined
  const range = { Range: `bytes=${at}-`, 'If-Range': facts.version! }
  let answer = await ask(facts.url, signal, range)
  if (answer instanceof Response && isRest(answer, at, facts))
    return receiveBody(folder, facts, answer.body!, at, onProgress)
  if (mayRefuseParts(answer)) {
    if (answer instanceof Response) await answer.body?.cancel()
    answer = await ask(facts.url, signal)
  }
  return receiveWhole(folder, facts, answer, onProgress)
}

/** The server's answer, or why there is none. */
export async function ask(
  url: string,
  signal: AbortSignal | undefined,
  headers: Record<string, string> = {},
): Promise<Response | string> {
  try {
    return await fetch(url, { headers, signal, cache: 'no-store' })
  } catch (thrown) {
    return messageOf(thrown)
  }
}

/** Returns whether the answer says that it is the file from byte `at` on. */
function isRest({ status, body, headers }: Response, at: number, facts: Facts): boolean {
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers.get('Content-Range') ?? '')
  if (status !== 206 || !body || !range) return false
  const [, first, total] = range
  return Number(first) === at && (total === '*' || Number(total) === facts.totalBytes)
}

/**
 * Returns whether the file may come where its rest did not: a server of another origin may refuse a request with these headers, which looks like
 * a broken connection, or hide which bytes it sent.
 */
const mayRefuseParts = (answer: Response | string): boolean =>
  typeof answer === 'string'
    ? globalThis.origin !== undefined
    : answer.status === 206 || answer.status === 416

/** Takes an answer as the whole file; what was there before is forgotten. */
async function receiveWhole(
  folder: PartFolder,
  facts: Facts,
  answer: Response | string,
  onProgress: DownloadOptions['onProgress'],
): Promise<string | undefined> {
  if (typeof answer === 'string') return answer
  if (answer.status >= 500) return `status ${answer.status}`
  if (!answer.ok || !answer.body || answer.status === 206)
    throw new DataError(
      'data.missing',
      `${facts.url}: the server answered with status ${answer.status}. Check the address.`,
    )
  if (facts.parts.length > 0) await begin(folder, facts)
  noteVersion(facts, answer.headers)
  return receiveBody(folder, facts, answer.body, 0, onProgress)
}

function noteVersion(facts: Facts, headers: Headers): void {
  const length = headers.get('Content-Length')
  facts.totalBytes = isEncoded(headers) || length === null ? null : Number(length)
  facts.version = isEncoded(headers) ? null : versionIn(headers)
}

/** True if the body's bytes and the file's are not the same ones: their length says nothing, and a range would not fit. */
export const isEncoded = (headers: Headers): boolean =>
  (headers.get('Content-Encoding') ?? 'identity') !== 'identity'

/** The server's name for this version of a file. */
export function versionIn(headers: Headers): string | null {
  const tag = headers.get('ETag')
  // A weak tag does not promise equal bytes.
  return tag && !tag.startsWith('W/') ? tag : headers.get('Last-Modified')
}

async function receiveBody(
  folder: PartFolder,
  facts: Facts,
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  resumedBytes: number,
  onProgress: DownloadOptions['onProgress'],
): Promise<string | undefined> {
  let open: Uint8Array<ArrayBuffer>[] = []
  let openBytes = 0
  const keep = async () => {
    if (openBytes === 0) return
    await folder.write(partName(facts.parts.length), new Blob(open))
    facts.parts.push(openBytes)
    open = []
    openBytes = 0
    await writeFacts(folder, facts)
  }
  const report = () =>
    onProgress?.({
      receivedBytes: sum(facts.parts) + openBytes,
      totalBytes: facts.totalBytes ?? undefined,
      resumedBytes,
    })
  report()
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      open.push(value)
      openBytes += value.byteLength
      report()
      if (openBytes >= partBytes) await keep()
    }
  } catch (thrown) {
    await keep()
    return messageOf(thrown)
  }
  await keep()
  const received = sum(facts.parts)
  if (facts.totalBytes !== null && received < facts.totalBytes) return 'the body ended early'
  return undefined
}
