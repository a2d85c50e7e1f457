import { DataError, messageOf } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'
import { checkOptions } from '../util/options.ts'
import {
  ask,
  attemptAll,
  checkAttempts,
  type DownloadOptions,
  download,
  isEncoded,
  versionIn,
} from './download.ts'
import { addressOf } from './folder.ts'
import type { ModelFolder } from './model-folder.ts'

/** As for `download`. With a `store`, files that are read whole are kept there, and come from there the next time. */
export type UrlFolderOptions = Pick<
  DownloadOptions,
  'store' | 'retries' | 'retryDelayMs' | 'signal'
>

/** A file of the server. */
interface Served {
  readonly sizeBytes: number
  readonly version: string | null
  /** The whole file, where parts are not fetched. */
  whole?: Blob
}

/**
 * Returns the folder of files behind an address: that of a hub (`https://host/owner/model/resolve/main/`), or any server's.
 *
 * Parts are fetched by range requests; one that breaks resumes after its last byte. From a server that ignores ranges each file is fetched
 * whole, once, into the store (by default the one of `download`).
 * errors: `config.invalid` for no address; `data.missing` where the server refuses; `data.interrupted`; `data.malformed` for a file that
 * changes while it is read.
 */
export function urlFolder(address: string | URL, options: UrlFolderOptions = {}): ModelFolder {
  const { signal, store } = checkOptions('urlFolder', options, {
    store: true,
    retries: true,
    retryDelayMs: true,
    signal: true,
  })
  checkAttempts('urlFolder', options)
  const base = addressOf('urlFolder', 'address', address)
  if (!base.pathname.endsWith('/')) base.pathname += '/'
  const urlOf = (name: string) => new URL(encodeURIComponent(name), base).href
  const known = new Map<string, Promise<Served | undefined>>()
  const fileOf = (name: string): Promise<Served | undefined> => {
    const file = known.get(name) ?? findFile(urlOf(name), options)
    known.set(name, file)
    file.catch(() => known.delete(name))
    return file
  }
  return {
    size: async (name) => (await fileOf(name))?.sizeBytes,
    async read(name, offset, length) {
      signal?.throwIfAborted()
      const file = (await fileOf(name))!
      if (!file.whole) return readRange(urlOf(name), file, offset, length, options)
      return new Uint8Array(await file.whole.slice(offset, offset + length).arrayBuffer())
    },
    ...(store && {
      async keep(names: readonly string[], onBytes: (bytes: number) => void) {
        let before = 0
        for (const name of names) {
          const file = (await fileOf(name))!
          const onProgress = ({ receivedBytes }: { receivedBytes: number }) =>
            onBytes(before + receivedBytes)
          file.whole ??= await download(urlOf(name), { ...options, onProgress })
          requireSame(urlOf(name), file.whole.size, file.sizeBytes)
          before += file.sizeBytes
          onBytes(before)
        }
      },
    }),
  }
}

const refused = (url: string, status: number) =>
  new DataError(
    'data.missing',
    `${url}: the server answered with status ${status}. ${status === 401 || status === 403 ? 'The file needs a login: download the folder, and pick its files.' : 'Check the address.'}`,
  )

function requireSame(url: string, got: unknown, expected: unknown): void {
  if (got === expected) return
  throw new DataError(
    'data.malformed',
    `${url}: the file changed while it was read: expected ${quoted(expected)}, got ${quoted(got)}. Load it again.`,
  )
}

/** The file at an address by its first byte, undefined if there is none. */
async function findFile(url: string, options: UrlFolderOptions): Promise<Served | undefined> {
  let found: Served | undefined
  await attemptAll(
    options,
    async () => {
      const answer = await ask(url, options.signal, { Range: 'bytes=0-0' })
      if (typeof answer === 'string') return answer
      const { status, headers } = answer
      await answer.body?.cancel()
      if (isPassing(status)) return `status ${status}`
      if (status === 404 || status === 204) return undefined
      const total = /^bytes (?:0-0|\*)\/(\d+)$/.exec(headers.get('Content-Range') ?? '')?.[1]
      const version = versionIn(headers)
      if (status === 416 && total === '0') found = { sizeBytes: 0, version }
      else if (status === 206 && total !== undefined && !isEncoded(headers))
        found = { sizeBytes: Number(total), version }
      else if (answer.ok) {
        // The server ignores ranges, or hides from other origins which one it sent.
        const whole = await download(url, options)
        found = { sizeBytes: whole.size, version, whole }
      } else throw refused(url, status)
      return undefined
    },
    () => `${url}: no answer`,
    () => 'none of its bytes',
  )
  return found
}

/** True if a server answers so for a while: it is overloaded, or asks to slow down. */
const isPassing = (status: number) => status >= 500 || status === 429

async function readRange(
  url: string,
  { sizeBytes, version }: Served,
  offset: number,
  length: number,
  options: UrlFolderOptions,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length)
  let filled = 0
  const attempt = async () => {
    const [begin, end] = [offset + filled, offset + length]
    const answer = await ask(url, options.signal, { Range: `bytes=${begin}-${end - 1}` })
    if (typeof answer === 'string') return answer
    const { status, headers, body } = answer
    if (isPassing(status) || !body) return `status ${status}`
    if (status !== 206) {
      await body.cancel()
      throw refused(url, status)
    }
    requireSame(url, headers.get('Content-Range'), `bytes ${begin}-${end - 1}/${sizeBytes}`)
    requireSame(url, versionIn(headers), version)
    try {
      for await (const part of partsOf(body)) {
        bytes.set(part.subarray(0, length - filled), filled)
        filled = Math.min(length, filled + part.length)
      }
    } catch (thrown) {
      return messageOf(thrown)
    }
    return filled < length ? 'the body ended early' : undefined
  }
  const place = () => `${offset + filled} of ${sizeBytes} bytes`
  if (length > 0) await attemptAll(options, attempt, () => `${url}: the connection broke`, place)
  return bytes
}

async function* partsOf(body: ReadableStream<Uint8Array<ArrayBuffer>>) {
  const reader = body.getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    yield value
  }
}
